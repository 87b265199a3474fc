"""The table that is written to, and queries about it: how much of a topic it holds, and when."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field

import psycopg
from psycopg import sql

SCHEMA = "public"
"""Every statement names it: the user's own schema, which comes first in the search path, belongs to the ledger."""

# What Batchledger creates for the schema of ``records``, with its index, so that all have the same table.
DDL = """
create table {} (
    message_id text, device_id integer, seq bigint, amount double precision, note text,
    _topic text not null, _partition integer not null, _offset bigint not null, _timestamp timestamptz,
    _batch_id bigint not null
)
"""
INDEX = "create index on {} using brin (_partition, _offset) with (autosummarize = on)"
# The numbers of batches are no content.
DIGEST = """
select sum(hashtextextended(
    row(message_id, device_id, seq, amount, note, _topic, _partition, _offset, extract(epoch from _timestamp))::text, 0
))::text from {}
"""
TAIL = """
select _partition, max(_offset) + 1 from {table} where ctid >= %s::tid group by 1
"""


def identify(table: str) -> sql.Identifier:
    """The name in statements."""
    return sql.Identifier(SCHEMA, table)


@contextmanager
def fresh_table(dsn: str, name: str) -> Iterator[str]:
    """Lend an empty table of that name."""
    table = identify(name)
    drop_table(dsn, name)
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(sql.SQL(DDL).format(table))
        connection.execute(sql.SQL(INDEX).format(table))
    try:
        yield name
    finally:
        drop_table(dsn, name)


def drop_table(dsn: str, name: str) -> None:
    """Drop the table if it is there."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(sql.SQL("drop table if exists {}").format(identify(name)))


@dataclass(frozen=True)
class Copies:
    """How a table differs from its topic."""

    lost: int
    doubled: int


def count_rows(dsn: str, table: str) -> int:
    """How many rows readers see."""
    row = _ask(dsn, sql.SQL("select count(*) from {}").format(identify(table)))
    return row[0]


def compare(dsn: str, table: str, records: int) -> Copies:
    """Compare the message ids with the topic, which has each once: count missing and repeated ones."""
    rows, distinct = _ask(dsn, sql.SQL("select count(*), count(distinct message_id) from {}").format(identify(table)))
    return Copies(lost=records - distinct, doubled=rows - distinct)


@dataclass(frozen=True)
class Tables:
    """See the role."""

    dsn: str = field(repr=False)

    def fresh(self, name: str) -> AbstractContextManager[object]:
        """See the role."""
        return fresh_table(self.dsn, name)

    def count_rows(self, name: str) -> int:
        """See the role."""
        return count_rows(self.dsn, name)

    def read_digest(self, name: str) -> str:
        """See the role."""
        with psycopg.connect(self.dsn) as connection:
            row = connection.execute(sql.SQL(DIGEST).format(identify(name))).fetchone()
            return str(row[0]) if row else ""


@dataclass
class Watch:
    """Asks again and again how far a table is filled.

    After the first look it reads the newest pages only, so that it costs little. It does not see a row that becomes
    visible more than ``tail_pages`` before the end of the table.
    """

    connection: "psycopg.Connection[tuple[int, ...]]" = field(repr=False)
    table: str
    tail_pages: int
    end_by_partition: dict[int, int] = field(default_factory=dict)
    has_looked: bool = False

    def look(self) -> dict[int, int]:
        """Return the next offset of every partition that has visible rows."""
        size = sql.SQL("select pg_relation_size({}) / 8192").format(sql.Literal(f"{SCHEMA}.{self.table}"))
        row = self.connection.execute(size).fetchone()
        first_page = max(0, row[0] - self.tail_pages) if row and self.has_looked else 0
        self.has_looked = True
        tail = sql.SQL(TAIL).format(table=identify(self.table))
        for partition, end in self.connection.execute(tail, [f"({first_page},0)"]):
            self.end_by_partition[partition] = max(end, self.end_by_partition.get(partition, 0))
        return self.end_by_partition


@contextmanager
def watching(dsn: str, table: str, tail_pages: int) -> Iterator[Watch]:
    """Lend a watch on a table. It is not vacuumed any more, because new rows would then go into holes of old pages."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(sql.SQL("alter table {} set (autovacuum_enabled = off)").format(identify(table)))
        yield Watch(connection, table, tail_pages)


def _ask(dsn: str, statement: sql.Composed) -> tuple[int, ...]:
    with psycopg.connect(dsn) as connection:
        row = connection.execute(statement).fetchone()
        return tuple(row) if row else ()
