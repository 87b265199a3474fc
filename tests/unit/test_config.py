"""Pipeline files are validated completely before any connection is opened; a refusal names file, key and value."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from batchledger.config import pipeline_file
from batchledger.config.pipeline_file import read_pipeline_file
from batchledger.lifecycle.platform import Deadlines
from batchledger.model.balance import HolePolicy
from batchledger.model.checks import Severity
from batchledger.model.errors import ConfigurationError, UnknownPipelineError
from batchledger.model.records.quarantine import QuarantineLimit
from batchledger.model.records.rules import (
    Deduplication,
    DuplicatePolicy,
    SequenceRule,
    SinkMode,
    TombstonePolicy,
    Upsert,
    VersionBy,
)
from batchledger.model.requests import TwoPersonOrder
from batchledger.planning.live import Limits, StartPolicy

GOOD: dict[str, Any] = {
    "name": "orders",
    "source": {"topics": ["orders"], "schema": "id string, amount decimal(10, 2)"},
    "sink": {"table": "orders"},
}

TOPIC = {"type": "kafka", "topic": "orders_out"}
AVRO_TOPIC = {**TOPIC, "format": "avro", "registry": "registry_default"}
UPSERT = {"sink__mode": "upsert", "sink__key": ["id"]}


def write(folder: Path, content: object) -> Path:
    path = folder / "orders.yaml"
    path.write_text(content if isinstance(content, str) else yaml.safe_dump(content))
    return path


def changed(**changes: Any) -> dict[str, Any]:
    """The good file with keys replaced; dots lead into sections."""
    content: dict[str, Any] = yaml.safe_load(yaml.safe_dump(GOOD))
    for key, value in changes.items():
        *sections, last = key.split("__")
        place = content
        for section in sections:
            place = place.setdefault(section, {})
        place[last] = value
    return content


def test_key_without_a_value_names_no_version_of_a_readers_schema(tmp_path: Path) -> None:
    content = changed(source__format="avro", source__registry="r", source__reader_schema=None)
    assert read_pipeline_file(write(tmp_path, content)).source.reader is None


def test_smallest_file_gets_the_safe_defaults(tmp_path: Path) -> None:
    rules = read_pipeline_file(write(tmp_path, GOOD)).rules
    assert (rules.start, rules.holes, rules.has_transform) == (StartPolicy.EARLIEST, HolePolicy.NONE, False)
    assert rules.limits.min_records == 1


def test_topic_is_a_sink_whose_ledger_is_named_beside_it(tmp_path: Path) -> None:
    found = read_pipeline_file(write(tmp_path, changed(sink=TOPIC)))
    assert (found.warehouse, found.sink.target, found.rules.mode) == ("warehouse", "topic orders_out", SinkMode.PRODUCE)
    assert read_pipeline_file(write(tmp_path, changed(sink=TOPIC, ledger="books"))).warehouse == "books"
    other_cluster = {**TOPIC, "topic": "orders", "connection": "kafka_elsewhere"}
    assert read_pipeline_file(write(tmp_path, changed(sink=other_cluster))).sink.target == "topic orders"
    table = read_pipeline_file(write(tmp_path, changed(sink__connection="dwh")))
    assert (table.warehouse, table.sink.target, table.rules.mode) == ("dwh", "orders", SinkMode.APPEND)


def test_limits_become_those_of_the_planning_step(tmp_path: Path) -> None:
    limits = {"max_records": 9, "min_records": 2, "max_delay": "1h", "target_duration": "2m"}
    assert read_pipeline_file(write(tmp_path, changed(limits=limits))).rules.limits == Limits(9, 2, 3600.0, 120.0)
    assert read_pipeline_file(write(tmp_path, GOOD)).rules.limits.target_duration_seconds is None


def test_quarantine_is_kept_and_the_whole_history_is_audited_unless_the_file_says_otherwise(tmp_path: Path) -> None:
    quiet = read_pipeline_file(write(tmp_path, GOOD))
    assert (quiet.quarantine, quiet.audit.newest, quiet.history.keep) == (None, None, None)
    content = changed(quarantine={"keep": "90d"}, audit={"newest": 1000}, history={"keep": "7d"})
    told = read_pipeline_file(write(tmp_path, content))
    assert told.quarantine is not None
    assert (told.quarantine.keep, told.audit.newest, told.history.keep) == (90 * 86400.0, 1000, 7 * 86400.0)


def test_half_of_twenty_records_may_be_quarantined_and_a_share_in_the_file_counts_from_the_first(
    tmp_path: Path,
) -> None:
    def limit(**quarantine: object) -> QuarantineLimit:
        content = changed(quarantine=quarantine) if quarantine else GOOD
        return read_pipeline_file(write(tmp_path, content)).rules.quarantine_limit

    assert limit() == limit(keep="90d") == QuarantineLimit(0.5, 20)
    for share in (0, 0.25, 1):
        assert limit(max_share=share) == QuarantineLimit(share, 1)
    assert read_pipeline_file(write(tmp_path, changed(quarantine={"max_share": 0.1}))).quarantine.keep is None  # type: ignore[union-attr]


def test_dedupe_becomes_a_rule_of_the_sink(tmp_path: Path) -> None:
    content = changed(dedupe={"key": ["id", "amount"], "remember": "30d"})
    pipeline = read_pipeline_file(write(tmp_path, content))
    assert pipeline.deduplication == Deduplication(("id", "amount"), timedelta(days=30))
    assert read_pipeline_file(write(tmp_path, GOOD)).deduplication is None


def test_duplicates_are_dropped_unless_the_file_lets_them_block(tmp_path: Path) -> None:
    dropping = read_pipeline_file(write(tmp_path, changed(dedupe={"key": ["id"], "remember": "1d"})))
    assert dropping.rules.deduplication == Deduplication(("id",), timedelta(days=1), DuplicatePolicy.DROP)
    content = changed(dedupe={"key": ["id"], "remember": "1d", "duplicates": "block"})
    blocking = read_pipeline_file(write(tmp_path, content)).rules.deduplication
    assert blocking == Deduplication(("id",), timedelta(days=1), DuplicatePolicy.BLOCK)


def test_sequence_becomes_a_rule_of_the_sink(tmp_path: Path) -> None:
    content = changed(sequence={"key": ["amount"], "number": "id"}, source__schema="id long, amount double")
    assert read_pipeline_file(write(tmp_path, content)).rules.sequence == SequenceRule(("amount",), "id")
    whole = {"key": ["amount"], "number": "id", "starts_at": 1, "severity": "warning"}
    content = changed(sequence=whole, source__schema="id long, amount double")
    expected = SequenceRule(("amount",), "id", 1, Severity.WARNING)
    assert read_pipeline_file(write(tmp_path, content)).numbering == expected
    assert read_pipeline_file(write(tmp_path, GOOD)).rules.sequence is None


def test_upsert_becomes_a_rule_of_the_sink(tmp_path: Path) -> None:
    content = changed(sink__mode="upsert", sink__key=["id"])
    assert read_pipeline_file(write(tmp_path, content)).sink.upsert == Upsert(("id",), VersionBy.OFFSET)
    content = changed(sink__mode="upsert", sink__key=["id"], sink__version="timestamp")
    assert read_pipeline_file(write(tmp_path, content)).sink.upsert == Upsert(("id",), VersionBy.TIMESTAMP)
    assert read_pipeline_file(write(tmp_path, GOOD)).sink.upsert is None


def test_tombstones_are_quarantined_unless_the_file_says_otherwise(tmp_path: Path) -> None:
    assert read_pipeline_file(write(tmp_path, GOOD)).source.tombstones is TombstonePolicy.QUARANTINE
    content = changed(source__tombstones="delete", dedupe={"key": ["amount"], "remember": "1d"}, **UPSERT)
    assert read_pipeline_file(write(tmp_path, content)).source.tombstones is TombstonePolicy.DELETE


def test_key_column_that_only_the_transform_knows_is_left_to_the_stage_step(tmp_path: Path) -> None:
    content = changed(dedupe={"key": ["made_up"], "remember": "30d"}, transform="my.module:function")
    assert read_pipeline_file(write(tmp_path, content)).deduplication is not None


def test_start_may_be_a_timestamp_and_means_utc_without_a_zone(tmp_path: Path) -> None:
    content = changed(source__start="2026-11-21T10:00:00")
    rules = read_pipeline_file(write(tmp_path, content)).rules
    assert rules.start is StartPolicy.TIMESTAMP
    assert rules.start_at is not None
    assert rules.start_at.isoformat() == "2026-11-21T10:00:00+00:00"


REFUSED: list[tuple[object, str]] = [
    (changed(shedule="@daily"), "shedule: unknown key 'shedule'; did you mean 'schedule'?"),
    (changed(source__topcs=["x"]), "source.topcs: unknown key 'topcs'; did you mean 'topics'?"),
    (changed(limits__max_record=5), "limits.max_record: unknown key 'max_record'; did you mean 'max_records'?"),
    (changed(zzz=1), "zzz: unknown key 'zzz'; allowed: name, schedule, start_on_records, source"),
    (changed(source={"schema": "a int"}), "source.topics: this key is required"),
    (changed(source__topics=[]), "source.topics: []"),
    (changed(source__topics="orders"), "source.topics: 'orders': write a list: topics: [orders]"),
    (changed(source__topics=["a", "b", "a"]), "topic 'a' is named twice"),
    (changed(limits__max_delay=30), "limits.max_delay: 30: a duration is a number and a unit"),
    (changed(limits__max_delay=-5), "limits.max_delay: -5: a duration is a number and a unit"),
    (changed(limits__max_delay=float("nan")), "limits.max_delay: nan: a duration is a number and a unit"),
    (changed(source__options={"fetch.min.bytes": "many"}), "fetch.min.bytes must be a whole number"),
    (changed(source__options={"fetch.max.wait.ms": 60_000}), "fetch.max.wait.ms must be at most 5000"),
    (changed(source__options={"request.timeout.ms": "1"}), "request.timeout.ms is not an allowed Kafka option"),
    (
        changed(source__topics=["a b"]),
        "source.topics.0: 'a b': write the name of a topic: letters, digits, . _ - only",
    ),
    (
        changed(source__schema="id strin"),
        "source.schema: 'id strin': column 'id': type 'strin' is not known; allowed are",
    ),
    (changed(source__schema="id"), "source.schema: 'id': 'id' is not a column"),
    (changed(source__schema="a int, A int"), "column 'a' appears twice"),
    (changed(source__schema="_offset int"), "names with a leading underscore are kept"),
    (changed(source__schema="a array<jsonb>"), "column 'a': jsonb is a column of its own"),
    (changed(source__schema="a.b. as c int"), "column 'c': 'a.b.' is no path"),
    (changed(source__schema="a decimal(50,2)"), "is not between decimal(1,0) and decimal(38,38)"),
    (changed(source__start="yesterday"), "allowed are earliest, latest, or a timestamp"),
    (changed(source__isolation="read_uncommitted"), "source.isolation: 'read_uncommitted' is not allowed"),
    (changed(source__holes="some"), "source.holes: 'some' is not allowed; allowed: 'none', 'transactional'"),
    (changed(source__format="xml"), "source.format: 'xml' is not allowed; allowed: 'json', 'avro' or 'protobuf'"),
    (changed(source__format="avro"), "format: avro needs registry, the connection of the schema registry"),
    (changed(source__registry="r"), "registry is for format: avro and format: protobuf"),
    (changed(source__format="avro", source__framing="none"), "framing: none: records name no schema"),
    (
        changed(source__format="avro", source__registry="r", source__schema_file="f"),
        "schema_file is for framing: none",
    ),
    (changed(source__reader_schema=3), "reader_schema is for format: avro and format: protobuf"),
    (
        changed(source__format="protobuf", source__registry="r", source__reader_schema=3),
        "reader_schema is for format: avro; schemas of Protobuf have no aliases",
    ),
    (
        changed(source__format="avro", source__framing="none", source__schema_file="f", source__reader_schema=3),
        "reader_schema is a version in a registry, and framing: none has no registry",
    ),
    (
        changed(source__format="avro", source__registry="r", source__reader_schema=3, source__unknown_fields="keep"),
        "source: reader_schema does not go with unknown_fields: keep",
    ),
    (
        changed(
            source__format="avro", source__registry="r", source__reader_schema=3, source__topics=["orders", "more"]
        ),
        "reader_schema is a version of one topic's subject",
    ),
    (
        changed(source__format="avro", source__registry="r", source__reader_schema="latest"),
        "source.reader_schema: 'latest': latest would give a replay other rows when a newer version is registered",
    ),
    (changed(source__format="avro", source__registry="r", source__reader_schema=0), "source.reader_schema: "),
    (
        changed(sink__table="a; drop table b"),
        "sink.table: 'a; drop table b': write table or schema.table, in small letters",
    ),
    (changed(source__tombstones="drop"), "source.tombstones: 'drop' is not allowed; allowed: 'quarantine', 'keep'"),
    (changed(source__tombstones="delete"), ": source.tombstones: delete needs a sink that knows"),
    (changed(source__tombstones="keep", **UPSERT), "source.tombstones: keep makes rows without a key"),
    (
        changed(source__tombstones="delete", transform="my.module:function", sink__mode="upsert", sink__key=["x"]),
        "sink.key: 'x' is not a column of source.schema",
    ),
    (
        changed(source__tombstones="delete", dedupe={"key": ["id"], "remember": "1d"}, **UPSERT),
        "dedupe.key: a tombstone would count as a duplicate of the record that it deletes",
    ),
    (changed(sink__evolve="add", delivery="at_most_once"), "sink.evolve: with delivery: at_most_once the position"),
    (changed(source__unknown_fields="add"), "unknown_fields: add needs a table that gets columns"),
    (changed(source__key={"format": "string", "columns": "id string"}), "column 'id' is in two of schema, key and"),
    (
        changed(source__key={"format": "bytes", "columns": "k string"}),
        "source.key: format bytes makes a binary column",
    ),
    (changed(source__headers={"tenant": "tenant"}), "write 'header NAME TYPE'"),
    (
        changed(
            source__key={"format": "string", "columns": "k string"},
            source__tombstones="delete",
            sink__mode="upsert",
            sink__key=["id", "k"],
        ),
        "name columns of source.key and source.headers alone",
    ),
    (changed(sink={"type": "hive"}), "sink.type: 'hive' is not allowed; allowed: 'postgres', 'kafka'"),
    (changed(sink={"type": "kafka"}), ": sink.topic: this key is required"),
    (changed(sink={**TOPIC, "table": "x"}), "sink.table: unknown key 'table'; allowed: type, connection, topic"),
    (changed(sink={**TOPIC, "keys": ["id"]}), "sink.keys: unknown key 'keys'; did you mean 'key'?"),
    (changed(sink={**TOPIC, "key": ["ids"]}), ": sink.key: 'ids' is not a column of source.schema"),
    (changed(sink={**TOPIC, "format": "xml"}), "sink.format: 'xml' is not allowed; allowed: 'json' or 'avro'"),
    (changed(sink={**TOPIC, "format": "avro"}), "format: avro: each value names its schema, so write registry"),
    (changed(sink={**TOPIC, "registry": "r"}), "registry is for format: avro; values in JSON have no schema that"),
    (changed(sink={**TOPIC, "subject": "s"}), "subject is for format: avro; values in JSON have no schema that"),
    (changed(sink={**AVRO_TOPIC, "subject": "a b"}), "sink.subject: 'a b': write a subject without blanks"),
    (changed(sink={**TOPIC, "headers": "none"}), "sink.headers: 'none' is not allowed; allowed: 'separate' or"),
    (changed(sink={**TOPIC, "transaction_timeout": "2d"}), "sink.transaction_timeout: '2d': write how long"),
    (changed(sink={**TOPIC, "topic": "orders"}), "sink.topic: 'orders' is in source.topics; the pipeline would"),
    (changed(sink={**TOPIC, "topic": "orders"}), "read its own rows. Name another topic in sink.topic"),
    (
        changed(sink={"type": "iceberg", "table": "orders2"}),
        "sink.table: 'orders2': write namespace.table, in small letters, digits and _, as shop.orders2",
    ),
    (changed(sink={"type": "iceberg", "table": "Shop.Orders"}), "sink.table: 'Shop.Orders': write namespace.table"),
    (changed(sink={"type": "iceberg", "table": "shop.a\n"}), "write namespace.table"),
    (changed(sink=TOPIC, source__tombstones="delete"), "source.tombstones: delete needs a sink that knows"),
    (changed(ledger="elsewhere"), "ledger: 'elsewhere': the ledger is where the table is, in 'warehouse'"),
    (changed(sink__mode="merge"), "sink.mode: 'merge' is not allowed; allowed: 'append' or 'upsert'"),
    (changed(sink__mode="upsert"), "mode upsert needs key: the columns that tell the rows apart"),
    (changed(sink__mode="upsert", sink__key=[]), "sink.key: []"),
    (changed(sink__mode="upsert", sink__key=["ids"]), ": sink.key: 'ids' is not a column of"),
    (changed(sink__mode="upsert", sink__key=["id"], sink__version="newest"), "allowed: 'offset' or 'timestamp'"),
    (changed(sink__key=["id"]), "key and version belong to mode: upsert"),
    (changed(sink__version="offset"), "key and version belong to mode: upsert"),
    (changed(sink__unmatched_deletions="info"), "unmatched_deletions belongs to mode: upsert"),
    (changed(sink__kye=["id"]), "sink.kye: unknown key 'kye'; did you mean 'key'?"),
    (changed(dedupe__key=[], dedupe__remember="1d"), "dedupe.key: []"),
    (
        changed(dedupe__key=["id", "id"], dedupe__remember="1d"),
        "dedupe.key: ['id', 'id']: column 'id' is named twice",
    ),
    (changed(dedupe__key=["ids"], dedupe__remember="1d"), ": dedupe.key: 'ids' is not a column of"),
    (changed(dedupe__key=["ids"], dedupe__remember="1d"), "did you mean 'id'?"),
    (
        changed(dedupe__key=["_offset"], dedupe__remember="1d"),
        "dedupe.key.0: '_offset': write the name of a column: a letter, then",
    ),
    (changed(dedupe__key=["id"]), "dedupe.remember: this key is required"),
    (changed(dedupe__key=["id"], dedupe__remember="0s"), "dedupe.remember: '0s': write how long a key is"),
    (changed(dedupe__key=["id"], dedupe__remember="1 month"), "dedupe.remember: '1 month': a duration is"),
    (
        changed(dedupe__key=["id"], dedupe__remember="1d", dedupe__duplicates="refuse"),
        "dedupe.duplicates: 'refuse' is not allowed; allowed: 'drop' or 'block'",
    ),
    (changed(sequence__key=["id"]), "sequence.number: this key is required"),
    (changed(sequence__key=["id"], sequence__number="amuont"), "sequence.number: 'amuont' is not a column of"),
    (changed(sequence__key=["ids"], sequence__number="id"), "sequence.key: 'ids' is not a column of"),
    (
        changed(sequence__key=["id"], sequence__number="amount"),
        "sequence.number: 'amount' is a decimal(10,2) in source",
    ),
    (changed(sequence__key=["id"], sequence__number="id"), "the number 'id' is in the key too"),
    (changed(sequence__key=["id"], sequence__number="amount", sequence__starts_at="1"), "sequence.starts_at: '1'"),
    (
        changed(sequence__key=["id"], sequence__number="amount", sequence__severity="high"),
        "sequence.severity: 'high' is not allowed; allowed: 'critical', 'warning' or 'info'",
    ),
    (changed(sequence__keys=["id"]), "sequence.keys: unknown key 'keys'; did you mean 'key'?"),
    (changed(history={"keep": "23h"}), "history.keep: '23h': write how long each batch is kept: 1d or more"),
    (changed(history={"keep": "9d"}, sink=TOPIC), "allowed for a PostgreSQL table with sink.mode: append"),
    (changed(history={"keep": "9d"}, **UPSERT), "history.keep: of this sink, joined batches would prove less"),
    (
        changed(quarantine__keep="59m"),
        "quarantine.keep: '59m': write how long a record is kept in quarantine: 1h or more",
    ),
    (changed(quarantine__max_share=1.5), "quarantine.max_share: 1.5: Input should be less than or equal to 1"),
    (changed(quarantine__max_share=-1), "quarantine.max_share: -1: Input should be greater than or equal to 0"),
    (changed(quarantine__max_share=float("nan")), "quarantine.max_share: nan: Input should be"),
    (changed(quarantine__max_share="half"), "quarantine.max_share: 'half': write a number"),
    (changed(quarantine__max_share=True), "quarantine.max_share: True: write a number"),
    (changed(audit__newest=0), "audit.newest: 0: Input should be greater than or equal to 1"),
    (changed(dedupe__keys=["id"]), "dedupe.keys: unknown key 'keys'; did you mean 'key'?"),
    (changed(delivery="twice"), "delivery: 'twice' is not allowed; allowed: 'exactly_once', 'at_least_once'"),
    (changed(limits__max_records="5"), "limits.max_records: '5': write a whole number"),
    (changed(limits__max_records=0), "limits.max_records: 0"),
    (changed(limits={"min_records": 9, "max_records": 5}), "min_records 9 is larger than max_records 5"),
    (
        changed(limits__target_duration=0),
        "limits.target_duration: 0: write how long a batch should take: 1s or more",
    ),
    (
        changed(limits__target_duration="1 min"),
        "limits.target_duration: '1 min': a duration is a number and a unit",
    ),
    (changed(limits__max_delay="soon"), "limits.max_delay: 'soon': a duration is a number and a unit"),
    (changed(schedule="every day"), "schedule: 'every day': not a cron expression"),
    (changed(schedule="@anything"), "schedule: '@anything': not a cron expression"),
    (changed(transform="no colon"), "transform: 'no colon': write module:function, such as"),
    (changed(name="Orders"), "name: 'Orders': write a small letter, then small letters, digits and _, 63 at most"),
    (changed(name="other"), "name: 'other' differs from the file name; call the file other.yaml"),
    ("just text", "not a pipeline: it has no keys"),
    ("a: [", "not readable as YAML"),
]
"""Files that are refused, and a part of the message."""


@pytest.mark.parametrize(("content", "expected"), REFUSED)
def test_bad_file_is_refused_with_file_key_value_and_what_is_allowed(
    tmp_path: Path, content: object, expected: str
) -> None:
    """S20, S22, S124, S140."""
    path = write(tmp_path, content)
    with pytest.raises(ConfigurationError) as caught:
        read_pipeline_file(path)
    assert str(path) in str(caught.value)
    assert expected in str(caught.value)


@pytest.mark.parametrize(
    ("option", "reason"),
    [
        ("enable.auto.commit", "only the ledger moves offsets"),
        ("kafka.enable.auto.commit", "only the ledger moves offsets"),
        ("group.id", "the reader assigns partitions and never subscribes"),
        ("failOnDataLoss", "lost records must stop the pipeline"),
        ("auto.offset.reset", "must stop the pipeline, not be replaced"),
        ("key.deserializer", "records are read as bytes"),
        ("value.deserializer", "records are read as bytes"),
        ("interceptor.classes", "foreign code"),
        ("sasl.jaas.config", "login modules can run code"),
        ("sasl.oauthbearer.token.endpoint.url", "CVE-2025-27817"),
        ("isolation.level", "set source.isolation instead"),
        ("fetch.max.byte", "did you mean fetch.max.bytes?"),
        ("max.poll.records", "the reader takes as many records at a time as have arrived"),
        ("security.providers", "is not an allowed Kafka option"),
    ],
)
def test_unsafe_and_unknown_kafka_options_are_refused_with_the_reason(tmp_path: Path, option: str, reason: str) -> None:
    """S136, S137."""
    path = write(tmp_path, changed(source__options={option: "x"}))
    with pytest.raises(ConfigurationError, match=r"source\.options") as caught:
        read_pipeline_file(path)
    assert f"{option} is" in str(caught.value)
    assert reason in str(caught.value)


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("source: {topics: [orders], schema: a int, start: earliest, start: latest}", "start"),
        ("name: orders\nname: payments", "name"),
    ],
)
def test_s28_key_that_is_given_twice_is_refused(tmp_path: Path, text: str, key: str) -> None:
    """YAML forbids it, its readers let the last one win: no reader could tell which start was meant."""
    file = write(tmp_path, text)
    with pytest.raises(ConfigurationError, match=rf":\d+:\d+: .*'{key}' appears twice") as refused:
        read_pipeline_file(file)
    assert refused.value.subject == str(file)


def test_every_fault_of_a_file_is_reported_at_once(tmp_path: Path) -> None:
    path = write(tmp_path, changed(shedule="@daily", delivery="maybe", source__topics=[]))
    with pytest.raises(ConfigurationError) as caught:
        read_pipeline_file(path)
    assert len(caught.value.message.splitlines()) == 3
    assert "reference/pipeline-file" in caught.value.advice


def test_file_that_is_not_text_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "orders.yaml"
    path.write_bytes(b"name: \xff\xfe")
    with pytest.raises(ConfigurationError, match="not readable as YAML"):
        read_pipeline_file(path)


def test_unknown_pipeline_is_answered_with_the_nearest_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, GOOD)
    monkeypatch.setenv(pipeline_file.PIPELINES_VARIABLE, str(tmp_path))
    with pytest.raises(UnknownPipelineError, match="Did you mean 'orders'") as refused:
        pipeline_file.load_pipeline("order")
    assert refused.value.pipeline == "order"


@pytest.mark.parametrize("content", ["", "- a list"])
def test_file_without_any_key_is_refused_with_what_it_needs(tmp_path: Path, content: str) -> None:
    file = tmp_path / "empty.yaml"
    file.write_text(content)
    with pytest.raises(ConfigurationError, match="it has no keys; write at least name, source and sink"):
        read_pipeline_file(file)


def test_deadlines_are_durations_and_none_by_default(tmp_path: Path) -> None:
    deadlines = {"lag": "10m", "freshness": "1h", "blocked": "2d"}
    pipeline = read_pipeline_file(write(tmp_path, changed(deadlines=deadlines, alerts=["ops_alerts", "pager"])))
    assert pipeline.deadlines.rules == Deadlines(timedelta(minutes=10), timedelta(hours=1), timedelta(days=2))
    assert pipeline.alerts == ["ops_alerts", "pager"]
    smallest = read_pipeline_file(write(tmp_path, GOOD))
    assert (smallest.deadlines.rules, smallest.alerts) == (Deadlines(), [])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"alerts": ["ops", "ops"]}, "alerts: .*connection 'ops' is named twice"),
        ({"alerts": ["ops alerts"]}, r"alerts\.0: 'ops alerts': write the id of a connection"),
        ({"alerts": "ops"}, "alerts: 'ops': "),
        ({"deadlines": {"lags": "1m"}}, "deadlines.lags: unknown key 'lags'; did you mean 'lag'?"),
        ({"deadlines": {"lag": "soon"}}, "deadlines.lag: 'soon': .*a duration is a number and a unit"),
        ({"deadlines": {"blocked": 0}}, "deadlines.blocked: 0: .*write a duration from 1s to 36500d"),
    ],
)
def test_alerts_and_deadlines_that_make_no_sense_are_refused(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigurationError, match=message):
        read_pipeline_file(write(tmp_path, changed(**changes)))


def test_orders_that_need_a_second_person_are_named_and_none_by_default(tmp_path: Path) -> None:
    pipeline = read_pipeline_file(write(tmp_path, changed(second_person=["truncate", "erase"])))
    assert pipeline.rules.second_person == (TwoPersonOrder.TRUNCATE, TwoPersonOrder.ERASE)
    assert read_pipeline_file(write(tmp_path, GOOD)).rules.second_person == ()
    for wrong, message in (
        (["rewind"], "second_person.0: 'rewind' is not allowed; allowed: 'accept', "),
        (["skip", "skip"], "second_person: .*order 'skip' is named twice"),
    ):
        with pytest.raises(ConfigurationError, match=message):
            read_pipeline_file(write(tmp_path, changed(second_person=wrong)))
