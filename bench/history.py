"""A long history of published batches, written straight into the ledger, as if each had been run.

Use it only on a server of your own, with a ledger that holds nothing of value. It changes PostgreSQL's catalog, so that
the indexes of ``batch_range`` are built after the rows are there. A failure in between leaves the indexes broken. It
needs PostgreSQL 18, which sorts ranges, and a superuser.
"""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import psycopg
from typing_extensions import override

from batchledger.model.batch import TopicIdentity

RECORDS = 10
"""How many offsets each range of a batch has."""
IDENTITY = TopicIdentity("bookkeeping", "orders")
TOPIC = "orders"

_CHECKS = (
    "balance_closes", "no_duplicate_offsets", "no_published_offsets", "no_rows_outside_ranges", "no_unexplained_holes",
    "ranges_meet_position", "staged_as_reported",
)  # fmt: skip

_PIPELINE = "insert into batchledger.pipeline (name) values (%(pipeline)s)"
_POSITIONS = """
insert into batchledger.position (pipeline, topic, partition, origin_offset, next_offset, cluster_id, topic_id)
select %(pipeline)s, %(topic)s, p, 0, %(batches)s::bigint * %(records)s::bigint, %(cluster_id)s, %(topic_id)s
from generate_series(0, %(partitions)s::int - 1) p
"""
_BATCHES = """
insert into batchledger.batch (
    batch_id, pipeline, lane, state, attempt, lag_left_records, reported_rows, published_rows, planned_by, planned_at,
    published_at, rows_published_at)
overriding system value
select %(base)s + b, %(pipeline)s, 'live', 'published', 1, 0, %(partitions)s::bigint * %(records)s::bigint,
    %(partitions)s::bigint * %(records)s::bigint, 'history',
    now() - make_interval(mins => (%(batches)s::bigint - b + 1)::int),
    now() - make_interval(mins => (%(batches)s::bigint - b + 1)::int, secs => -5),
    now() - make_interval(mins => (%(batches)s::bigint - b + 1)::int, secs => -5)
from generate_series(1, %(batches)s::bigint) b
"""
_ATTEMPTS = """
insert into batchledger.attempt (batch_id, number, run, opened_at, staged_at, audited_at, ended_at, outcome)
select batch_id, 1, 'history', planned_at + interval '1 s', planned_at + interval '3 s', planned_at + interval '4 s',
    published_at, 'published'
from batchledger.batch where pipeline = %(pipeline)s
order by batch_id
"""
_CHECK_RESULTS = """
insert into batchledger.check_result (batch_id, attempt, name, outcome, detail, observed)
select b.batch_id, 1, name, 'passed', 'all is well', '{"total": 0}'
from batchledger.batch b cross join unnest(%(checks)s::text[]) name
where b.pipeline = %(pipeline)s
order by b.batch_id
"""
_RANGES = """
insert into batchledger.batch_range (
    batch_id, pipeline, topic, partition, offsets, published_live, accepted, duplicates, quarantined, tombstones,
    filtered, holes, aborted, markers, compacted, accepted_loss, held)
select %(base)s + b, %(pipeline)s, %(topic)s, p, offsets, true, %(records)s::bigint, 0, 0, 0, 0, 0, 0, 0, 0, 0,
    int8multirange(offsets)
from generate_series(1, %(batches)s::bigint) b
cross join int8range((b - 1) * %(records)s::bigint, b * %(records)s::bigint) offsets
cross join generate_series(0, %(partitions)s::int - 1) p
"""

_SEQUENCE = (
    "select setval(pg_get_serial_sequence('batchledger.batch', 'batch_id'), max(batch_id)) from batchledger.batch"
)

_FIRST_NAME = re.compile(r"INDEX \S+ ON")
_SWAP_FILES = """
update pg_class mine
set relfilenode = other.relfilenode, relpages = other.relpages, reltuples = other.reltuples
from pg_class other
where (mine.oid = %(one)s::oid and other.oid = %(other)s::regclass)
    or (mine.oid = %(other)s::regclass and other.oid = %(one)s::oid)
"""


@dataclass(frozen=True)
class History:
    """The history of one pipeline: so many published batches, each with a range of every partition of one topic.

    ``records`` is the number of offsets of a range. ``name`` names the pipeline; without it, the size does.
    """

    batches: int
    partitions: int
    records: int = RECORDS
    topic: str = TOPIC
    identity: TopicIdentity = IDENTITY
    name: str | None = None

    @property
    def pipeline(self) -> str:
        """The name of the pipeline."""
        return self.name or f"history_{self.batches}x{self.partitions}"

    @override
    def __str__(self) -> str:
        return f"{self.batches:,} batches of {self.partitions:,} partitions"


def seed(dsn: str, histories: Sequence[History], maintenance_memory: str = "1GB") -> None:
    """Write the histories, and let PostgreSQL analyse its tables."""
    with psycopg.connect(dsn, autocommit=True) as connection, connection.cursor() as cursor:
        cursor.execute("select set_config('maintenance_work_mem', %s, false)", [maintenance_memory])
        cursor.execute("set allow_system_table_mods = on")
        # Otherwise each statement for each of a thousand pipelines waits for the disk.
        cursor.execute("set synchronous_commit = off")
        with _filled_at_the_end(cursor):
            # PostgreSQL checks foreign keys once a row; here only a mistake above can break them.
            cursor.execute("set session_replication_role = replica")
            for history in histories:
                _insert(cursor, history)
        # Otherwise autovacuum does it during a measurement.
        cursor.execute("vacuum (analyze)")


def _insert(cursor: psycopg.Cursor[Any], history: History) -> None:
    ((base,),) = cursor.execute("select coalesce(max(batch_id), 0) from batchledger.batch").fetchall()
    parameters = {
        "pipeline": history.pipeline,
        "topic": history.topic,
        "cluster_id": history.identity.cluster_id,
        "topic_id": history.identity.topic_id,
        "base": base,
        "batches": history.batches,
        "partitions": history.partitions,
        "records": history.records,
        "checks": list(_CHECKS),
    }
    for statement in (_PIPELINE, _POSITIONS, _BATCHES, _ATTEMPTS, _CHECK_RESULTS, _RANGES, _SEQUENCE):
        cursor.execute(statement, parameters)


@contextmanager
def _filled_at_the_end(cursor: psycopg.Cursor[Any]) -> Iterator[None]:
    """Build the indexes of ``batch_range`` by sorting, after the block has written the rows.

    PostgreSQL cannot do so for an exclusion constraint: to add one, it compares each row with all others, which takes
    longer than everything else. So an index of the same definition is built, and takes the constraint's place on disk.
    """
    cursor.execute(
        "select indexrelid, pg_get_indexdef(indexrelid) from pg_index "
        "where indrelid = 'batchledger.batch_range'::regclass and (indisexclusion or indisprimary)"
    )
    indexes = cursor.fetchall()
    oids = [oid for oid, _ in indexes]
    # The keys of a multirange index are ranges, too, but PostgreSQL 18 sorts only the keys of a range index.
    cursor.execute(
        "alter operator family pg_catalog.multirange_ops using gist "
        "add function 11 (anymultirange, anymultirange) range_sortsupport(internal)"
    )
    cursor.execute("update pg_index set indisready = false, indisvalid = false where indexrelid = any(%s)", [oids])
    yield
    for oid, definition in indexes:
        filled = "batchledger.batch_range_filled"
        cursor.execute(_FIRST_NAME.sub("INDEX batch_range_filled ON", definition, count=1).encode())
        cursor.execute(_SWAP_FILES, {"one": oid, "other": filled})
        cursor.execute("update pg_index set indisready = true, indisvalid = true where indexrelid = %s", [oid])
        cursor.execute(f"drop index {filled}")
    cursor.execute(
        "alter operator family pg_catalog.multirange_ops using gist drop function 11 (anymultirange, anymultirange)"
    )
