"""Search what a stack leaves behind: every file that it writes, and every row of its databases."""

import errno
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import chain, islice
from pathlib import Path

import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo

from tests.support import find_secret

ROWS_AT_ONCE = 10_000


def find_leaks(words: Mapping[str, str], local: Path, dsn: str) -> dict[str, set[str]]:
    """The places that hold some of the words, each with the names of the words that it holds.

    A place is a file below the local folder, or ``database.schema.table`` of the server that the DSN leads to, as a
    superuser. The server's own files are left out: they hold the rows, and some of them compressed.
    """
    found: dict[str, set[str]] = {}
    for place, content in chain(_read_files(local), _read_rows(dsn)):
        if held := {name for name, word in words.items() if find_secret(word, content)}:
            found.setdefault(place, set()).update(held)
    return found


def _read_files(local: Path) -> Iterator[tuple[str, bytes]]:
    for file in sorted(local.rglob("*")):
        place = file.relative_to(local)
        if place.parts[0] != "postgres" and file.is_file() and not file.is_symlink():
            for written in _read_written(file):
                yield str(place), written


def _read_written(file: Path) -> Iterator[bytes]:
    """Iterate over what was written, without holes: Kafka makes 20 MB of empty indexes for each partition."""
    with file.open("rb", buffering=0) as opened:
        end = 0
        while True:
            try:
                start = os.lseek(opened.fileno(), end, os.SEEK_DATA)
                end = os.lseek(opened.fileno(), start, os.SEEK_HOLE)
            except OSError as error:
                if error.errno != errno.ENXIO:
                    raise
                return
            yield os.pread(opened.fileno(), end - start, start)


def _read_rows(dsn: str) -> Iterator[tuple[str, bytes]]:
    with psycopg.connect(dsn) as connection:
        databases = [name for (name,) in connection.execute("select datname from pg_database where datallowconn")]
    for database in databases:
        with psycopg.connect(make_conninfo(dsn, dbname=database)) as connection:
            tables = connection.execute(
                "select n.nspname, c.relname from pg_class c join pg_namespace n on n.oid = c.relnamespace"
                " where c.relkind in ('r', 'p', 'm') and n.nspname !~ '^pg_toast'"
            ).fetchall()
            for schema, table in tables:
                place = f"{database}.{schema}.{table}"
                # A table that is dropped meanwhile, such as the staging of an attempt, leaves nothing behind.
                copied = sql.SQL("copy (select t::text from {} t) to stdout").format(sql.Identifier(schema, table))
                with (
                    suppress(psycopg.errors.UndefinedTable),
                    connection.transaction(),
                    connection.cursor().copy(copied) as rows,
                ):
                    for chunk in _in_chunks(rows):
                        yield place, chunk


def _in_chunks(rows: Iterable[bytes | memoryview]) -> Iterator[bytes]:
    """Join lines to chunks: looking through hundreds of thousands of rows one after the other takes a minute."""
    lines = iter(rows)
    while chunk := b"".join(islice(lines, ROWS_AT_ONCE)):
        yield chunk
