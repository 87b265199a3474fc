"""The columns of a table beside the columns of rows: what fits, what a publication may change, and what it may not."""

from collections.abc import Iterator, Sequence
from typing import Any

import psycopg
import pyarrow as pa
from psycopg import sql

from batchledger.database.transactions import cause_of
from batchledger.database.weather import Cause
from batchledger.model.records.columns import BATCH_COLUMN, PROVENANCE_COLUMNS
from batchledger.model.records.contract import SchemaChange, TableColumn
from batchledger.model.records.types import WITHIN
from batchledger.sinks.staging.tables import columns_of, postgres_type
from batchledger.sinks.table.evolution import ARRAY, NOTHING_CHANGES, WIDER_TYPES, ColumnChanges, describe_changes
from batchledger.sinks.table.silent_changes import changes_values, describe_type


def compare_columns(
    cursor: psycopg.Cursor[Any], table: tuple[str, str], schema: pa.Schema, key: Sequence[str]
) -> list[TableColumn] | None:
    """Return the columns of the rows, then other ones that the table needs; None without a table."""
    known = columns_of(cursor, *table)
    if not known:
        return None
    base = read_base_types(cursor, table)
    identifier = sql.Identifier(*table)
    compared = [_compare(cursor, identifier, each, (known.get(each.name), base.get(each.name)), key) for each in schema]
    if BATCH_COLUMN not in known:
        # No publication adds it.
        statement = describe_changes(cursor, identifier, ColumnChanges({BATCH_COLUMN: "bigint"}, {}))
        compared.append(TableColumn(BATCH_COLUMN, None, "bigint", SchemaChange.BREAKING, statement))
    named = {*schema.names, BATCH_COLUMN}
    return [*compared, *(each for each in _list_required(cursor, table, known) if each.name not in named)]


def _compare(
    cursor: psycopg.Cursor[Any],
    table: sql.Identifier,
    field: pa.Field,
    found: tuple[str | None, str | None],
    key: Sequence[str],
) -> TableColumn:
    """``found`` is the type of the table's column, and what it is made of."""
    known, base = found
    type_, wanted, changes = postgres_type(field), describe_type(field), NOTHING_CHANGES
    change: SchemaChange | None = SchemaChange.BREAKING
    if known is None and field.name in PROVENANCE_COLUMNS:
        # No publication adds it. In a table with rows the column needs its values, so there is no statement either.
        changes = NOTHING_CHANGES
    elif known is None:
        change, changes = SchemaChange.ADDITIVE, ColumnChanges({field.name: type_}, {})
    elif type_ in WIDER_TYPES.get(known, ()):
        change, changes = SchemaChange.WIDENING, ColumnChanges({}, {field.name: type_})
    elif not changes_values(field, base or known) and _takes(cursor, table, field.name, type_):
        change = None
    statement = describe_changes(cursor, table, changes) if changes else None
    if changes and field.name in key:
        # A publication changes no key.
        change = SchemaChange.BREAKING
    if change is not None and known is not None and known.endswith(ARRAY) and wanted.endswith(ARRAY):
        element, rows = known.removesuffix(ARRAY), wanted.removesuffix(ARRAY)
        return TableColumn(f"{field.name}{WITHIN}", element, rows, change, statement)
    return TableColumn(field.name, known, wanted, change, statement)


def read_base_types(cursor: psycopg.Cursor[Any], table: tuple[str, str]) -> dict[str, str]:
    """Return type by column name, and for a domain, also as an element, what it is made of: that rounds and cuts."""
    cursor.execute(
        "with recursive base (name, type, modifier, array_of) as ("
        "select attname, atttypid, atttypmod, '' from pg_attribute "
        "where attrelid = to_regclass(%s) and attnum > 0 and not attisdropped "
        "union all select name, case typtype when 'd' then typbasetype else typelem end, "
        "case when modifier = -1 then typtypmod else modifier end, "
        "array_of || case typtype when 'd' then '' else '[]' end "
        "from base join pg_type on oid = type where typtype = 'd' or typcategory = 'A') "
        "select name, format_type(type, modifier) || array_of from base join pg_type on oid = type "
        "where typtype <> 'd' and typcategory <> 'A'",
        [sql.Identifier(*table).as_string(cursor)],
    )
    return dict(cursor.fetchall())


def _takes(cursor: psycopg.Cursor[Any], table: sql.Identifier, column: str, type_: str) -> bool:
    """Whether PostgreSQL converts a value of the type to the column's when it is inserted."""
    insert = sql.SQL("explain insert into {} ({}) select null::{}").format(
        table, sql.Identifier(column), sql.SQL(type_)
    )
    try:
        with cursor.connection.transaction():
            cursor.execute(insert)
    except psycopg.Error as error:
        if cause_of(error) is not Cause.REFUSAL:
            raise
        return False
    return True


def _list_required(cursor: psycopg.Cursor[Any], table: tuple[str, str], known: dict[str, str]) -> Iterator[TableColumn]:
    """Yield the columns that take no null and fill themselves in no other way."""
    cursor.execute(
        "select attname from pg_attribute where attrelid = to_regclass(%s) and attnum > 0 and not attisdropped "
        "and attnotnull and not atthasdef and attidentity = '' order by attnum",
        [sql.Identifier(*table).as_string(cursor)],
    )
    yield from [TableColumn(name, known[name], None, SchemaChange.BREAKING) for (name,) in cursor.fetchall()]
