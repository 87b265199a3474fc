"""New and wider columns of a table: rows are staged for the schema that their publication gives it in the same commit.

Until then the table knows nothing of that schema. Its numbers of columns are the next ones that the table would give
away, so it holds only as long as others do not alter the table: a publication makes it up again, and compares.
"""

from collections.abc import Collection, Iterable
from typing import TypeAlias

import pyarrow as pa
from pyiceberg.exceptions import ResolveError
from pyiceberg.io.pyarrow import _pyarrow_to_schema_without_ids
from pyiceberg.schema import Schema, promote
from pyiceberg.table import Table
from pyiceberg.types import DecimalType, DoubleType, FloatType, IcebergType, IntegerType, LongType, NestedField

from batchledger.adapters.iceberg.layout import name_of, name_type
from batchledger.model.batch import Batch
from batchledger.model.errors import StagingLostError, TargetChangedError
from batchledger.model.records.contract import SchemaChange, TableColumn
from batchledger.model.records.rules import Evolution
from batchledger.model.refusals import stage_again

_WIDER_TYPES = ((IntegerType(), LongType()), (FloatType(), DoubleType()))

StoredColumns: TypeAlias = Iterable[tuple[str, IcebergType]]
"""Name and type of columns, by the names of the table."""


def columns_of(schema: pa.Schema) -> StoredColumns:
    """Return the columns of rows as the table types them."""
    return [(each.name, each.field_type) for each in _pyarrow_to_schema_without_ids(schema).fields]


def evolve(table: Table, columns: StoredColumns, evolution: Evolution, key: Collection[str] = ()) -> Schema:
    """Return the schema that the table may have for rows with these columns. A column of the ``key`` stays as it is.

    New columns come at the end, empty in older rows.
    """
    known = {each.name: each.field_type for each in table.schema().fields}
    update = table.update_schema()
    is_changed = False
    for name, type_ in columns:
        if name in key:
            continue
        if name not in known and evolution.adds:
            update.add_column((name,), type_)
            is_changed = True
        elif name in known and evolution.widens and is_wider(type_, known[name]):
            update.update_column((name,), field_type=type_)
            is_changed = True
    return update._apply() if is_changed else table.schema()


def is_wider(type_: IcebergType, known: IcebergType) -> bool:
    """Whether a column may become of this type, as the specification of Iceberg's tables says: all values stay.

    PyIceberg would also let a text become binary, which no other engine reads.
    """
    if isinstance(type_, DecimalType) and isinstance(known, DecimalType):
        return type_.scale == known.scale and type_.precision > known.precision
    return (known, type_) in _WIDER_TYPES


def compare_columns(table: Table, name: str, columns: StoredColumns, key: Collection[str]) -> list[TableColumn]:
    """Return the columns of the rows, then those that the table has besides, and that take no null."""
    known = {each.name: each for each in table.schema().fields}
    by_lower = {each.lower(): each for each in known}
    compared = []
    for column, type_ in columns:
        # To Spark, names that differ by case alone are the same.
        fixed = column in key or by_lower.get(column.lower(), column) != column
        compared.append(_compare(name, column, type_, known.get(column), is_fixed=fixed))
    filled = {each.name for each in compared}
    required = [each for each in table.schema().fields if each.required and name_of(each.name) not in filled]
    return [
        *compared,
        *(TableColumn(each.name, name_type(each.field_type), None, SchemaChange.BREAKING) for each in required),
    ]


def _compare(table: str, column: str, type_: IcebergType, known: NestedField | None, *, is_fixed: bool) -> TableColumn:
    """``is_fixed``: no publication makes such a column, or changes it."""
    name, wanted = name_of(column), name_type(type_)
    if known is None:
        change = SchemaChange.BREAKING if is_fixed else SchemaChange.ADDITIVE
        return TableColumn(name, None, wanted, change, f"alter table {table} add column {column} {wanted}")
    has = name_type(known.field_type)
    if known.required:
        statement = f"alter table {table} alter column {column} drop not null"
        return TableColumn(name, f"{has} not null", wanted, SchemaChange.BREAKING, statement)
    if _takes(known.field_type, type_):
        return TableColumn(name, has, wanted, None)
    if not is_wider(type_, known.field_type):
        return TableColumn(name, has, wanted, SchemaChange.BREAKING)
    change = SchemaChange.BREAKING if is_fixed else SchemaChange.WIDENING
    return TableColumn(name, has, wanted, change, f"alter table {table} alter column {column} type {wanted}")


def require_columns(table: Table, name: str, staged: Schema, columns: Collection[str]) -> None:
    """Raise TargetChangedError when the table has lost a column; the ``staged`` rows may bring new ones."""
    had = {(each.field_id, each.name) for schema in table.metadata.schemas for each in schema.fields}
    new = [each for each in staged.fields if (each.field_id, each.name) not in had]
    known = {name_of(each.name) for each in (*table.schema().fields, *new)}
    lost = [each for each in columns if each not in known]
    if lost:
        raise TargetChangedError(
            f"Table {name} has lost the column {lost[0]}. Nothing was published.",
            advice="Give the column its name back. If it was dropped, add it and fill it for older rows.\nThen "
            "try again.",
            subject=name,
        )


def find_next(table: Table, staged: Schema, batch: Batch) -> Schema:
    """Return the schema that the table has once rows are published that were staged for ``staged``.

    Raises StagingLostError when others have altered the table so that it does not take them any more.
    """
    # Another publication may have given a number away to a column of another name.
    current = {(each.field_id, each.name): each.field_type for each in table.schema().fields}
    found = [(current.get((each.field_id, each.name)), each.field_type) for each in staged.fields]
    if all(known is not None and _takes(known, type_) for known, type_ in found):
        return table.schema()
    wanted = evolve(table, [(each.name, each.field_type) for each in staged.fields], Evolution.WIDEN)
    if wanted.fields != staged.fields:
        raise StagingLostError(
            f"{batch.label} does not fit table {'.'.join(table.name())} any more. Nothing was published.",
            why="The columns of the table were changed after the files of the batch had been written.",
            advice=stage_again(batch),
            batch_id=batch.batch_id,
        )
    return wanted


def _takes(column: IcebergType, rows: IcebergType) -> bool:
    """Whether a column takes rows of another type or the same, as PyIceberg writes them."""
    try:
        return column == rows or bool(promote(rows, column) == column)
    except ResolveError:
        return False
