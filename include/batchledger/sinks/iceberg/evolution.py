"""New and wider columns of a table: rows are staged for the schema that their publication gives it in the same commit.

Until then the table knows nothing of that schema. Its numbers of columns are the next ones that the table would give
away, so it holds only as long as others do not alter the table: a publication makes it up again, and compares.
"""

from collections.abc import Collection, Iterable, Iterator
from typing import NamedTuple, TypeAlias

import pyarrow as pa
from pyiceberg.exceptions import ResolveError
from pyiceberg.io.pyarrow import _pyarrow_to_schema_without_ids
from pyiceberg.schema import Schema, promote
from pyiceberg.table import Table
from pyiceberg.types import (
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StructType,
)

from batchledger.model.batch import Batch
from batchledger.model.errors import StagingLostError, TargetChangedError
from batchledger.model.records.contract import SchemaChange, TableColumn
from batchledger.model.records.rules import Evolution
from batchledger.model.records.types import WITHIN
from batchledger.model.refusals import stage_again
from batchledger.sinks.iceberg.layout import name_of, name_type, write_path

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
    known = {each.name: each for each in table.schema().fields}
    changes = [
        each
        for name, type_ in columns
        if name not in key
        for each in find_changes((name,), known.get(name), type_)
        if (evolution.adds and each.change is SchemaChange.ADDITIVE)
        or (evolution.widens and each.change is SchemaChange.WIDENING)
    ]
    update = table.update_schema()
    # A publication makes the schema up again, from columns in another order. Each has to get the same number.
    for each in sorted(changes, key=lambda each: each.path if len(each.path) > 1 else ()):
        if each.change is SchemaChange.ADDITIVE:
            update.add_column(each.path, each.type)
        else:
            update.update_column(each.path, field_type=each.type)
    return update._apply() if changes else table.schema()


class FieldChange(NamedTuple):
    """What would make a field, also one within a column, such as the rows have it: another type or a new field.

    ``path`` is Iceberg's, with ``element`` and ``value``; ``shown`` is how people read it: ``items[].price``. ``known``
    is the table's own field, None if it has none. ``is_filled``: the rows have the field, too.
    """

    path: tuple[str, ...]
    shown: str
    known: NestedField | None
    type: IcebergType
    change: SchemaChange
    is_filled: bool = True


def find_changes(
    path: tuple[str, ...], known: NestedField | None, type_: IcebergType, shown: str = ""
) -> Iterator[FieldChange]:
    """Yield what is different in a column of the table, and within it."""
    shown = shown or path[0]
    if known is None:
        yield FieldChange(path, shown, None, type_, SchemaChange.ADDITIVE)
        return
    match known.field_type, type_:
        case StructType() as had, StructType() as wanted:
            yield from _find_changes_within(path, had, wanted, shown)
        case ListType() as had, ListType() as wanted:
            element = had.element_field
            yield from find_changes((*path, "element"), element, wanted.element_type, f"{shown}{WITHIN}")
        case MapType() as had, MapType() as wanted if had.key_type == wanted.key_type:
            yield from find_changes((*path, "value"), had.value_field, wanted.value_type, f"{shown}{WITHIN}")
        case has, _ if isinstance(has, MapType) or not _takes(has, type_):
            change = SchemaChange.WIDENING if is_wider(type_, has) else SchemaChange.BREAKING
            yield FieldChange(path, shown, known, type_, change)
        case _:
            pass
    if known.required:
        yield FieldChange(path, shown, known, type_, SchemaChange.BREAKING)


def _find_changes_within(
    path: tuple[str, ...], had: StructType, wanted: StructType, shown: str
) -> Iterator[FieldChange]:
    by_name = {each.name: each for each in had.fields}
    by_lower = {each.lower() for each in by_name}
    for each in wanted.fields:
        known, place = by_name.get(each.name), f"{shown}.{each.name}"
        if known is None and each.name.lower() in by_lower:
            yield FieldChange((*path, each.name), place, None, each.field_type, SchemaChange.BREAKING)
        else:
            yield from find_changes((*path, each.name), known, each.field_type, place)
    filled = {each.name for each in wanted.fields}
    yield from (
        FieldChange((*path, each.name), f"{shown}.{each.name}", each, each.field_type, SchemaChange.BREAKING, False)
        for each in had.fields
        if each.required and each.name not in filled
    )


def is_wider(type_: IcebergType, known: IcebergType) -> bool:
    """Whether a column may become of this type, as the specification of Iceberg's tables says: all values stay.

    PyIceberg would also let a text become binary, which no other engine reads.
    """
    if isinstance(type_, DecimalType) and isinstance(known, DecimalType):
        return type_.scale == known.scale and type_.precision > known.precision
    return (known, type_) in _WIDER_TYPES


def compare_columns(table: Table, name: str, columns: StoredColumns, key: Collection[str]) -> list[TableColumn]:
    """Return the columns of the rows, then those that the table has besides, and that take no null.

    A column that differs within stands there once for each part that differs.
    """
    known = {each.name: each for each in table.schema().fields}
    by_lower = {each.lower(): each for each in known}
    compared: list[TableColumn] = []
    for column, type_ in columns:
        changes = list(find_changes((column,), known.get(column), type_, name_of(column)))
        if by_lower.get(column.lower(), column) != column:
            # To Spark, names that differ by case alone are the same, so it has no statement.
            changes = [each._replace(change=SchemaChange.BREAKING) for each in changes]
        compared += [_describe(name, each, is_fixed=column in key) for each in changes]
        if not changes:
            compared.append(TableColumn(name_of(column), name_type(known[column].field_type), name_type(type_), None))
    filled = {column for column, _ in columns}
    required = [each for each in table.schema().fields if each.required and each.name not in filled]
    return [
        *compared,
        *(TableColumn(each.name, name_type(each.field_type), None, SchemaChange.BREAKING) for each in required),
    ]


def _describe(table: str, found: FieldChange, *, is_fixed: bool) -> TableColumn:
    """Return the change with the statement that Spark has for it. ``is_fixed``: no publication makes it."""
    table, path, type_ = write_path(*table.split(".")), write_path(*found.path), name_type(found.type)
    has = None if found.known is None else name_type(found.known.field_type)
    statement = None
    if found.change is SchemaChange.ADDITIVE:
        statement = f"alter table {table} add column {path} {type_}"
    elif found.change is SchemaChange.WIDENING:
        statement = f"alter table {table} alter column {path} type {type_}"
    elif found.is_filled and found.known is not None and found.known.required:
        has, statement = f"{has} not null", f"alter table {table} alter column {path} drop not null"
    change = SchemaChange.BREAKING if is_fixed else found.change
    return TableColumn(found.shown, has, type_ if found.is_filled else None, change, statement)


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
    if _holds(table.schema(), staged):
        return table.schema()
    wanted = evolve(table, [(each.name, each.field_type) for each in staged.fields], Evolution.WIDEN)
    if wanted.fields != staged.fields:
        raise fits_no_more(table, batch, "columns")
    return wanted


def fits_no_more(table: Table, batch: Batch, what: str) -> StagingLostError:
    """Say that others have altered the table, so that it does not take the staged files."""
    return StagingLostError(
        f"{batch.label} does not fit table {'.'.join(table.name())} any more. Nothing was published.",
        why=f"The {what} of the table were changed after the files of the batch had been written.",
        advice=stage_again(batch),
        batch_id=batch.batch_id,
    )


def _holds(schema: Schema, staged: Schema) -> bool:
    """Whether columns take rows that were written for ``staged``: each part has its number and name, also within."""
    return all(
        schema.find_column_name(number) == staged.find_column_name(number)
        and _takes(schema.find_type(number), staged.find_type(number))
        for number in staged.field_ids
    )


def _takes(column: IcebergType, rows: IcebergType) -> bool:
    """Whether a column takes rows of another type or the same, as PyIceberg writes them; not what is within them."""
    if not column.is_primitive:
        return type(column) is type(rows)
    try:
        return column == rows or bool(promote(rows, column) == column)
    except ResolveError:
        return False
