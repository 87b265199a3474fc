"""A long history of published batches, written straight into the ledger, as if they had been taken one by one.

Only for a ledger that holds nothing else of value: the indexes of ``batch_range`` are dropped, and built again when the
rows are there, because filling them row by row takes most of the time.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg import sql

from batchledger.batch import TopicIdentity

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
select %(base)s + b, %(pipeline)s, 'live', 'published', 1, 0, %(partitions)s::bigint * %(records)s::bigint, %(partitions)s::bigint * %(records)s::bigint,
    'history', now() - make_interval(mins => (%(batches)s::bigint - b + 1)::int),
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
select %(base)s + b, %(pipeline)s, %(topic)s, p, int8range((b - 1) * %(records)s::bigint, b * %(records)s::bigint), true,
    %(records)s::bigint, 0, 0, 0, 0, 0, 0, 0, 0, 0,
    int8multirange(int8range((b - 1) * %(records)s::bigint, b * %(records)s::bigint))
from generate_series(1, %(batches)s::bigint) b cross join generate_series(0, %(partitions)s::int - 1) p
"""


@dataclass(frozen=True)
class History:
    """So many published batches of one pipeline, each with a range of every partition."""

    batches: int
    partitions: int

    @property
    def pipeline(self) -> str:
        """The pipeline that it is of."""
        return f"history_{self.batches}x{self.partitions}"


def seed(dsn: str, histories: Sequence[History], maintenance_memory: str = "1GB") -> None:
    """Write the histories, and let PostgreSQL look at what has become of its tables."""
    with psycopg.connect(dsn) as connection, connection.cursor() as cursor:
        # Foreign keys are looked at once a row; that of a range has no other way to fail than a mistake above.
        cursor.execute("set local session_replication_role = replica")
        cursor.execute("select set_config('maintenance_work_mem', %s, true)", [maintenance_memory])
        with_indexes = _drop_indexes(cursor)
        for history in histories:
            _insert(cursor, history)
        for constraint in with_indexes:
            cursor.execute(constraint)
    with psycopg.connect(dsn, autocommit=True) as connection:
        # Otherwise autovacuum does it while somebody measures.
        connection.execute("vacuum (analyze)")


def _insert(cursor: psycopg.Cursor[Any], history: History) -> None:
    ((base,),) = cursor.execute("select coalesce(max(batch_id), 0) from batchledger.batch").fetchall()
    parameters = {
        "pipeline": history.pipeline,
        "topic": TOPIC,
        "cluster_id": IDENTITY.cluster_id,
        "topic_id": IDENTITY.topic_id,
        "base": base,
        "batches": history.batches,
        "partitions": history.partitions,
        "records": RECORDS,
        "checks": list(_CHECKS),
    }
    # The rest would otherwise be planned for a batch table without the new rows.
    for statement in (_PIPELINE, _POSITIONS, _BATCHES, "analyze batchledger.batch", _ATTEMPTS, _CHECK_RESULTS, _RANGES):
        cursor.execute(statement, parameters)
    cursor.execute(
        "select setval(pg_get_serial_sequence('batchledger.batch', 'batch_id'), max(batch_id)) from batchledger.batch"
    )


def _drop_indexes(cursor: psycopg.Cursor[Any]) -> list[sql.Composed]:
    """Drop the constraints of ``batch_range`` that have an index; return the statements that bring them back."""
    cursor.execute(
        "select conname, pg_get_constraintdef(oid) from pg_constraint "
        "where conrelid = 'batchledger.batch_range'::regclass and contype in ('p', 'x') order by contype"
    )
    alter = sql.SQL("alter table batchledger.batch_range ")
    constraints = [(sql.Identifier(name), sql.SQL(definition)) for name, definition in cursor.fetchall()]
    for name, _ in constraints:
        cursor.execute(alter + sql.SQL("drop constraint {}").format(name))
    return [alter + sql.SQL("add constraint {} {}").format(*each) for each in constraints]
