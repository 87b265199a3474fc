"""New and wider columns of a table: rows are staged for the schema that their publication gives it in the same commit.

Until then the table knows nothing of that schema. Its numbers of columns are the next ones that the table would give
away, so it holds only as long as others do not alter the table: a publication makes it up again, and compares.
"""

from collections.abc import Collection, Iterable, Sequence
from typing import TypeAlias

import pyarrow as pa
from pyiceberg.exceptions import ResolveError
from pyiceberg.io.pyarrow import _pyarrow_to_schema_without_ids
from pyiceberg.schema import Schema, promote
from pyiceberg.table import Table
from pyiceberg.types import IcebergType, NestedField

from batchledger.model.batch import Batch
from batchledger.model.errors import StagingLostError
from batchledger.model.records.rules import Evolution
from batchledger.model.refusals import stage_again

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
    """Whether a type holds every value of another one."""
    return type_ != known and _holds(type_, known)


def find_new(table: Table, staged: Schema) -> Sequence[NestedField]:
    """Return the columns of a schema of staged rows that the table has never had."""
    return [each for each in staged.fields if each.field_id > table.metadata.last_column_id]


def find_next(table: Table, staged: Schema, batch: Batch) -> Schema:
    """Return the schema that the table has once rows are published that were staged for ``staged``.

    Raises StagingLostError when others have altered the table so that it does not take them any more.
    """
    # Another publication may have given a number away to a column of another name.
    current = {(each.field_id, each.name): each.field_type for each in table.schema().fields}
    found = [(current.get((each.field_id, each.name)), each.field_type) for each in staged.fields]
    if all(known is not None and _holds(known, type_) for known, type_ in found):
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


def _holds(wide: IcebergType, narrow: IcebergType) -> bool:
    try:
        return bool(promote(narrow, wide) == wide)
    except ResolveError:
        return False
