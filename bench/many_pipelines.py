"""A thousand pipelines with their files, topics and histories: the largest case for the pages.

Everything is real but the work. Records are in the broker. Positions and batches are in the ledger as if they had been
published (``history``): exactly one batch holds each offset before a position. No target holds a row.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import yaml
from confluent_kafka import KafkaException, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from typing_extensions import override

from batchledger.local.samples.producer import BULK_OPTIONS
from batchledger.source.kafka.log import KafkaLog
from batchledger.source.kafka.requests import open_admin
from bench.history import History, seed

PARTITIONS_CREATED_AT_ONCE = 2_000
"""Partitions of one request: a controller refuses many more."""
ANSWER_SECONDS = 120.0
UNREAD_RECORDS = 5
"""Unread records in each partition of a pipeline that lags."""
LAGS_EVERY = 5
QUARANTINED_EVERY = 50
"""The distance between two offsets of the longest history that are in quarantine."""

CONNECTION = "pages_warehouse"
"""The Airflow connection of all sinks."""
LONG, WIDE = "long", "wide"
"""Names of pipelines, and of their topics."""
_SCHEMA = "message_id string, device_id int, seq bigint, amount double, note string"

# The balance has to count the records in quarantine.
_SET_ASIDE = """
update batchledger.batch_range set accepted = accepted - 1, quarantined = 1
where pipeline = %(pipeline)s and lower(offsets) %% %(every)s = 0
"""
_QUARANTINE = """
insert into batchledger.quarantine (pipeline, topic, partition, "offset", "timestamp", value, error, batch_id)
select pipeline, topic, partition, lower(offsets), now(), convert_to('{"amount": "forty"', 'utf8'),
    'the value is no JSON document', batch_id
from batchledger.batch_range where pipeline = %(pipeline)s and quarantined > 0
"""
_OPEN = """
insert into batchledger.batch (pipeline, lane, state, attempt, lag_left_records, planned_by)
values (%(pipeline)s, 'live', %(state)s, 1, 0, 'manual__1')
returning batch_id
"""
_OPEN_ATTEMPT = """
insert into batchledger.attempt (batch_id, number, run, opened_at, staged_at, audited_at, ended_at, outcome)
select %(batch_id)s, 1, 'manual__1', now(), now(), ended_at, ended_at, case when ended_at is not null then 'blocked' end
from (select case when %(state)s = 'blocked' then now() end as ended_at) a
"""
_OPEN_CHECK = """
insert into batchledger.check_result (batch_id, attempt, name, outcome, detail, observed)
select %(batch_id)s, 1, 'balance_closes', 'failed', 'a range has more rows than offsets', '{"total": 1}'
where %(state)s = 'blocked'
"""
_OPEN_RANGES = """
insert into batchledger.batch_range (batch_id, pipeline, topic, partition, offsets)
select %(batch_id)s, pipeline, topic, partition, int8range(next_offset, next_offset + %(records)s::bigint)
from batchledger.position where pipeline = %(pipeline)s
"""


@dataclass(frozen=True)
class ManyPipelines:
    """How many pipelines there are, and how large: ``ordinary`` ones, one with a long history, one with a wide topic.

    Every fifth ordinary pipeline lags, and the first of these is blocked. The wide one has an open batch. The long
    history has one partition, with every fiftieth record in quarantine.
    """

    ordinary: int
    batches: int
    partitions: int
    long_batches: int
    wide_partitions: int
    wide_batches: int

    @property
    def names(self) -> tuple[str, ...]:
        """The ordinary pipelines, in their order."""
        return tuple(f"ordinary_{number:04d}" for number in range(self.ordinary))

    @property
    def histories(self) -> tuple[History, ...]:
        """The histories of all pipelines, the long one last. A topic has its pipeline's name, and no identity yet."""
        ordinary = (History(self.batches, self.partitions, 1, name, name=name) for name in self.names)
        wide = History(self.wide_batches, self.wide_partitions, 1, WIDE, name=WIDE)
        return (*ordinary, wide, History(self.long_batches, 1, 1, LONG, name=LONG))

    @property
    def all_partitions(self) -> int:
        """The partitions of all topics."""
        return sum(each.partitions for each in self.histories)

    @property
    def all_batches(self) -> int:
        """The published batches in the ledger."""
        return sum(each.batches for each in self.histories)

    @property
    def lagging(self) -> tuple[str, ...]:
        """The pipelines with unread records; the first one is blocked, the last one is the wide one."""
        return (*self.names[::LAGS_EVERY], WIDE)

    @override
    def __str__(self) -> str:
        pipelines = len(self.histories)
        return f"{pipelines:,} pipelines, {self.all_partitions:,} partitions, {self.all_batches:,} batches"


@dataclass(frozen=True)
class Page:
    """A page of Batchledger in Airflow, and what it stands for."""

    subject: str
    path: str


def write_files(folder: Path, many: ManyPipelines) -> None:
    """Write the pipeline files, with the keys that people use."""
    for history in many.histories:
        content = {
            "name": history.pipeline,
            "schedule": "*/5 * * * *",
            "source": {"topics": [history.topic], "schema": _SCHEMA, "holes": "none"},
            "sink": {"connection": CONNECTION, "table": history.pipeline},
            "limits": {"max_records": 200_000, "min_records": 1},
            "dedupe": {"key": ["message_id"], "remember": "30d"},
            "checks": [
                {"type": "expect_column_values_to_not_be_null", "column": "device_id", "severity": "critical"},
                {"type": "expect_column_values_to_be_between", "column": "amount", "min_value": 0},
            ],
        }
        (folder / f"{history.pipeline}.yaml").write_text(yaml.safe_dump(content))


def write_topics(options: Mapping[str, str], many: ManyPipelines) -> None:
    """Create the topics, and write the read and the unread records of each partition."""
    client = open_admin(options)
    for group in _group(many.histories):
        topics = [NewTopic(each.topic, each.partitions, 1, config={"retention.ms": "-1"}) for each in group]
        _wait(client, client.create_topics(topics, request_timeout=ANSWER_SECONDS))
    refused: list[object] = []

    def note(error: object, _: Message) -> None:
        if error is not None:
            refused.append(error)

    producer = Producer({**options, **BULK_OPTIONS, "on_delivery": note})
    lagging = set(many.lagging)
    for history in many.histories:
        unread = UNREAD_RECORDS if history.pipeline in lagging else 0
        for partition in range(history.partitions):
            for _ in range(history.batches * history.records + unread):
                _send(producer, history.topic, partition)
    producer.flush(ANSWER_SECONDS)
    if refused or len(producer):
        raise RuntimeError(f"{len(refused)} records were refused, {len(producer)} not answered for: {refused[:1]}")


def delete_topics(options: Mapping[str, str], many: ManyPipelines) -> None:
    """Delete the topics."""
    client = open_admin(options)
    for group in _group(many.histories):
        _wait(client, client.delete_topics([each.topic for each in group], request_timeout=ANSWER_SECONDS))


def seed_ledger(dsn: str, options: Mapping[str, str], many: ManyPipelines) -> None:
    """Write what was published, is blocked or is in quarantine into a migrated ledger without any use."""
    log = KafkaLog(options).read_log([each.topic for each in many.histories])
    identities = log.identity_by_topic
    named = [
        History(each.batches, each.partitions, each.records, each.topic, identities[each.topic], each.name)
        for each in many.histories
    ]
    seed(dsn, named)
    with psycopg.connect(dsn) as connection, connection.cursor() as cursor:
        cursor.execute(_SET_ASIDE, {"pipeline": LONG, "every": QUARANTINED_EVERY})
        cursor.execute(_QUARANTINE, {"pipeline": LONG})
        _open_batch(cursor, many.lagging[0], "blocked")
        _open_batch(cursor, WIDE, "staged")
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("vacuum (analyze)")


def _open_batch(cursor: psycopg.Cursor[Any], pipeline: str, state: str) -> None:
    """Write an open batch over all unread offsets."""
    asked = {"pipeline": pipeline, "state": state, "records": UNREAD_RECORDS}
    ((batch_id,),) = cursor.execute(_OPEN, asked).fetchall()
    for statement in (_OPEN_ATTEMPT, _OPEN_RANGES, _OPEN_CHECK):
        cursor.execute(statement, {**asked, "batch_id": batch_id})


def list_pages(dsn: str, many: ManyPipelines) -> list[Page]:
    """Return the pages to be measured."""
    blocked, ordinary = many.lagging[0], many.names[-1]
    middle = many.long_batches // 2
    newest = {name: _newest_batch(dsn, name) for name in (blocked, LONG, WIDE)}
    pages = -(-len(many.histories) // 50)
    return [
        Page("all pipelines", "/pipelines"),
        Page("all pipelines, last page", f"/pipelines?page={pages}"),
        Page("all pipelines, searched", f"/pipelines?q={ordinary[:-1]}"),
        Page("all pipelines, those that lag", "/pipelines?state=unread+records"),
        Page(f"pipeline of {many.partitions} partitions", f"/pipelines/{ordinary}"),
        Page("pipeline that is blocked", f"/pipelines/{blocked}"),
        Page(f"pipeline of {many.wide_partitions:,} partitions", f"/pipelines/{WIDE}"),
        Page(f"pipeline of {many.long_batches:,} batches", f"/pipelines/{LONG}"),
        Page("its older batches", f"/pipelines/{LONG}?before={newest[LONG] - middle}"),
        Page("its partition", f"/pipelines/{LONG}/partitions/{LONG}/0"),
        Page(
            "its partition, 100 offsets", f"/pipelines/{LONG}/partitions/{LONG}/0?start={middle}&until={middle + 100}"
        ),
        Page("its newest batch", f"/pipelines/{LONG}/batches/{newest[LONG]}"),
        Page("a batch from its middle", f"/pipelines/{LONG}/batches/{newest[LONG] - middle}"),
        Page("its decisions", f"/pipelines/{LONG}/decisions"),
        Page(f"batch of {many.wide_partitions:,} ranges", f"/pipelines/{WIDE}/batches/{newest[WIDE]}"),
        Page("batch that is blocked", f"/pipelines/{blocked}/batches/{newest[blocked]}"),
        Page("decisions about a wide pipeline", f"/pipelines/{WIDE}/decisions"),
    ]


def _newest_batch(dsn: str, pipeline: str) -> int:
    with psycopg.connect(dsn) as connection:
        query = "select max(batch_id) from batchledger.batch where pipeline = %s"
        ((batch_id,),) = connection.execute(query, [pipeline]).fetchall()
    return int(batch_id)


def _group(histories: Sequence[History]) -> Iterator[list[History]]:
    """Yield chunks of a size that a controller takes."""
    group: list[History] = []
    for each in histories:
        if group and sum(one.partitions for one in (*group, each)) > PARTITIONS_CREATED_AT_ONCE:
            yield group
            group = []
        group.append(each)
    yield group


def _wait(client: AdminClient, answers: Mapping[str, Any]) -> None:
    """Wait for the answers; the client has to live until then."""
    for topic, future in answers.items():
        try:
            future.result(timeout=ANSWER_SECONDS)
        except KafkaException as error:
            raise RuntimeError(f"the topic {topic} was not created or deleted by {client}: {error}") from error


def _send(producer: Producer, topic: str, partition: int) -> None:
    while True:
        try:
            producer.produce(topic, b"{}", partition=partition)
        except BufferError:
            producer.poll(0.1)
        else:
            return
