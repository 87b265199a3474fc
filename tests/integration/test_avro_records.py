"""Records in Avro, by a real registry, into each kind of target."""

import json
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any
from uuid import UUID, uuid4

import pytest

from batchledger.ledger.writer_schemas import list_used_schemas
from batchledger.lifecycle import plans, run_batch
from batchledger.lifecycle.writer_schemas import ASKED_AGAIN
from batchledger.model.batch import Decision
from batchledger.model.errors import ConfigurationError, SchemaChangedError, StagingError
from batchledger.model.offsets import OffsetRange, TopicPartition
from batchledger.planning.replay import Replay
from batchledger.wiring import verify_pipeline
from tests.avro import Schema, encode, frame, record_schema, register
from tests.integration.test_cli import batchledger
from tests.integration.test_planted_faults import checks_of, take
from tests.registry_gate import Answer, open_gate
from tests.support import TestPipeline, Workplace

FIRST = record_schema(
    message_id="string", amount={"type": "bytes", "logicalType": "decimal", "precision": 8, "scale": 2}
)
SECOND = record_schema(message_id="string", amount=FIRST["fields"][1]["type"], city=["null", "string"])
THIRD = record_schema(
    city=["null", "string"],
    tags={"type": "array", "items": "string"},
    message_id="string",
    amount=FIRST["fields"][1]["type"],
)
SOURCE = {
    "format": "avro",
    "registry": "registry_default",
    "schema": "message_id string, amount decimal(8,2), city string, tags array<string>",
}
UNKNOWN_ID = 2_000_000_000


def create(workplace: Workplace, into: str = "table", **changes: Any) -> TestPipeline:
    source = {**SOURCE, **changes.pop("source", {})}
    return workplace.create(into=into, partitions=1, source=source, quarantine={"max_share": 1}, **changes)


def send(pipeline: TestPipeline, *values: bytes | None, **more: Any) -> None:
    pipeline.send_raw([(0, value) for value in values], **more)


def read(pipeline: TestPipeline) -> list[tuple[Any, ...]]:
    """The declared columns of every row, by message id."""
    if pipeline.writes_elsewhere:
        rows: Sequence[Mapping[str, Any]] = pipeline.read_output()
        found = [(row["message_id"], Decimal(str(row["amount"])), row["city"], row["tags"]) for row in rows]
        return sorted(found, key=lambda row: row[0])
    return pipeline.query("select message_id, amount, city, tags from {target} order by 1")


def errors_of(pipeline: TestPipeline) -> list[str]:
    """Why records are in quarantine, in the order of their offsets."""
    found = pipeline.query(
        'select error from batchledger.quarantine where pipeline = %s order by "offset"', pipeline.name
    )
    return [error for (error,) in found]


def order(schema: Schema, message_id: str, **more: Any) -> bytes:
    return encode(schema, {"message_id": message_id, "amount": Decimal("1.50"), **more})


@pytest.mark.parametrize("into", ["table", "lake", "topic"])
@pytest.mark.parametrize("transform", [None, "tests.transforms:keep_all"], ids=["written at once", "transformed"])
def test_records_of_three_versions_are_read_by_their_own(
    workplace: Workplace, registry_url: str, into: str, transform: str | None
) -> None:
    pipeline = create(workplace, into, transform=transform)
    subjects = [f"{pipeline.name}-{number}" for number in range(3)]
    one, two, three = (register(registry_url, *each) for each in zip(subjects, (FIRST, SECOND, THIRD), strict=True))
    send(
        pipeline,
        frame(one, order(FIRST, "a")),
        frame(three, order(THIRD, "b", city="Rome", tags=["x", "y"])),
        frame(two, order(SECOND, "c", city=None)),
        frame(one, order(FIRST, "d")),
        frame(two, order(SECOND, "e", city="Oslo")),
        frame(three, order(THIRD, "f", city=None, tags=[])),
    )
    run_batch.run_once(pipeline.platform(), "run")
    amount = Decimal("1.50")
    assert read(pipeline) == [
        ("a", amount, None, None),
        ("b", amount, "Rome", ["x", "y"]),
        ("c", amount, None, None),
        ("d", amount, None, None),
        ("e", amount, "Oslo", None),
        ("f", amount, None, []),
    ]
    assert errors_of(pipeline) == []
    assert verify_pipeline(pipeline.config).holds


def test_what_is_no_datum_is_set_aside_and_its_neighbours_are_published(
    workplace: Workplace, registry_url: str
) -> None:
    pipeline = create(workplace)
    one = register(registry_url, pipeline.name, FIRST)
    other = register(registry_url, f"{pipeline.name}-other", record_schema(message_id="string", amount="boolean"))
    good = order(FIRST, "a")
    send(
        pipeline,
        frame(one, good),
        b"\1" + frame(one, good)[1:],
        b"\0\0",
        frame(one, good[:-1]),
        frame(one, good + b"\0"),
        frame(UNKNOWN_ID, good),
        frame(other, b"\2a\1"),
        frame(one, order(FIRST, "b")),
        b"",
        None,
    )
    run_batch.run_once(pipeline.platform(), "run")
    assert [row[0] for row in read(pipeline)] == ["a", "b"]
    wrong_magic, too_short, cut_off, trailing, unknown, unfit, empty, tombstone = errors_of(pipeline)
    assert wrong_magic == "it does not begin with the magic byte 0"
    assert too_short == empty == "the value is shorter than a schema id"
    assert "amount" in cut_off or "cut" in cut_off or "ends" in cut_off, cut_off
    assert trailing != cut_off
    assert unknown == f"schema {UNKNOWN_ID} is unknown to the registry"
    assert unfit.startswith(f"schema {other}: field amount is boolean")
    assert tombstone == "the record has no value (a tombstone)"
    assert verify_pipeline(pipeline.config).holds
    # The schema whose only record was set aside is listed, too.
    assert {(each.id, each.batches) for each in list_used_schemas(pipeline.workplace.dsn, pipeline.name)} == {
        (one, 1),
        (other, 1),
    }


@pytest.mark.parametrize("into", ["table", "lake", "topic"])
def test_record_of_an_unknown_schema_comes_in_when_it_is_registered(
    workplace: Workplace, registry_url: str, into: str
) -> None:
    pipeline = create(workplace, into)
    schema = record_schema(
        message_id="string", amount=FIRST["fields"][1]["type"], extra={"type": "fixed", "name": name(), "size": 2}
    )
    # The next id that the registry will give away.
    following = register(registry_url, f"{pipeline.name}-before", record_schema(**{name(): "int"})) + 1
    send(pipeline, frame(following, order(schema, "a", extra=b"xy")))
    run_batch.run_once(pipeline.platform(), "run")
    assert errors_of(pipeline) == [f"schema {following} is unknown to the registry"]
    assert register(registry_url, pipeline.name, schema) == following
    done = batchledger("quarantine", "replay", pipeline.name, "--all", "--reason", "its schema is registered")
    assert done.returncode == 0, done.stderr
    assert [row[0] for row in read(pipeline)] == ["a"]
    assert verify_pipeline(pipeline.config).holds


def name() -> str:
    return f"n{uuid4().hex[:12]}"


@pytest.mark.parametrize("into", ["table", "lake", "topic"])
def test_registry_that_is_away_blocks_nothing_that_is_known_and_quarantines_nothing(
    workplace: Workplace, registry_url: str, monkeypatch: pytest.MonkeyPatch, into: str
) -> None:
    """It goes away between two batches: known schemas go on, an unknown one waits, and a replay needs no registry."""
    way = name()
    with open_gate(registry_url) as gate:
        monkeypatch.setenv(f"AIRFLOW_CONN_{way.upper()}", json.dumps({"conn_type": "http", "host": gate.url}))
        pipeline = create(workplace, into, source={"registry": way}, limits={"max_records": 2})
        one = register(registry_url, pipeline.name, FIRST)
        two = register(registry_url, f"{pipeline.name}-second", SECOND)
        send(pipeline, frame(one, order(FIRST, "a")), frame(one, order(FIRST, "b")))
        send(pipeline, frame(one, order(FIRST, "c")), frame(one, order(FIRST, "d")))
        send(pipeline, frame(two, order(SECOND, "e", city="Oslo")))
        run_batch.run_once(pipeline.platform(), "first")
    run_batch.run_once(pipeline.platform(), "second")
    assert [row[0] for row in read(pipeline)] == ["a", "b", "c", "d"]
    with pytest.raises(StagingError, match=r"schema registry at .* cannot be reached"):
        run_batch.run_once(pipeline.platform(), "third")
    assert errors_of(pipeline) == []
    before = read(pipeline)
    if into != "topic":
        everything = Replay((OffsetRange(TopicPartition(pipeline.name, 0), 0, 4),))
        batch = plans.plan_replay(pipeline.platform(), everything, "again", Decision("ana", "again"), "again")
        assert batch is not None
        run_batch.take_through(pipeline.platform(), batch.batch_id, "again")
        assert read(pipeline) == before
    with open_gate(registry_url) as gate:
        monkeypatch.setenv(f"AIRFLOW_CONN_{way.upper()}", json.dumps({"conn_type": "http", "host": gate.url}))
        run_batch.run_once(pipeline.platform(), "fourth")
        assert [each.rpartition("/")[2] for each in gate.asked] == [str(two)]
    assert [row[0] for row in read(pipeline)] == ["a", "b", "c", "d", "e"]
    assert errors_of(pipeline) == []
    assert verify_pipeline(pipeline.config).holds


def test_registry_that_fails_in_the_middle_of_a_batch_sets_nothing_aside(
    workplace: Workplace, registry_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    way = name()
    with open_gate(registry_url) as gate:
        monkeypatch.setenv(f"AIRFLOW_CONN_{way.upper()}", json.dumps({"conn_type": "http", "host": gate.url}))
        pipeline = create(workplace, source={"registry": way})
        one = register(registry_url, pipeline.name, FIRST)
        two = register(registry_url, f"{pipeline.name}-second", SECOND)
        send(pipeline, frame(one, order(FIRST, "a")), frame(two, order(SECOND, "b", city=None)))
        # The first schema is given; each request for the other one fails, however often it is made.
        gate.answers = [None, *[Answer(503, "busy")] * 40]
        with pytest.raises(StagingError, match="registry"):
            run_batch.run_once(pipeline.platform(), "first")
        assert (pipeline.count_target_rows(), errors_of(pipeline)) == (0, [])
        gate.answers = []
        run_batch.run_once(pipeline.platform(), "first")
    assert [row[0] for row in read(pipeline)] == ["a", "b"]
    assert errors_of(pipeline) == []
    assert verify_pipeline(pipeline.config).holds


def test_registry_that_has_another_schema_under_an_id_stops_the_pipeline(
    workplace: Workplace, registry_url: str
) -> None:
    pipeline = create(workplace)
    one = register(registry_url, pipeline.name, FIRST)
    send(pipeline, frame(one, order(FIRST, "a")))
    run_batch.run_once(pipeline.platform(), "first")
    pipeline.query(
        "update batchledger.writer_schema set definition = replace(definition, 'message_id', 'message_no') "
        "where registry = 'registry_default' and id = %s returning id",
        str(one),
    )
    send(pipeline, frame(one, order(FIRST, "b")))
    try:
        with pytest.raises(SchemaChangedError, match=f"another schema {one}"):
            run_batch.run_once(pipeline.platform(), "second")
    finally:
        pipeline.query(
            "update batchledger.writer_schema set definition = replace(definition, 'message_no', 'message_id') "
            "where registry = 'registry_default' and id = %s returning id",
            str(one),
        )
    assert [row[0] for row in read(pipeline)] == ["a"]


def test_fields_of_a_schema_that_no_column_has_are_counted(workplace: Workplace, registry_url: str) -> None:
    pipeline = create(workplace, source={"schema": "message_id string, amount decimal(8,2)"})
    two = register(registry_url, f"{pipeline.name}-2", SECOND)
    one = register(registry_url, pipeline.name, FIRST)
    send(pipeline, frame(one, order(FIRST, "a")), frame(two, order(SECOND, "b", city=None)))
    send(pipeline, frame(two, order(SECOND, "c", city=None)))
    check = checks_of(take(pipeline).batch_id)["no_unknown_fields"]
    assert check["observed"]["fields"] == {"city": {"records": 2, "first": f"{pipeline.name}[0]@1"}}


@pytest.mark.parametrize("into", ["table", "lake", "topic"])
@pytest.mark.parametrize("transform", [None, "tests.transforms:keep_all"], ids=["written at once", "transformed"])
def test_fields_that_no_column_has_are_kept(
    workplace: Workplace, registry_url: str, into: str, transform: str | None
) -> None:
    source = {"schema": "message_id string", "unknown_fields": "keep"}
    pipeline = create(workplace, into, source=source, transform=transform)
    short = record_schema(message_id="string")
    zero = register(registry_url, f"{pipeline.name}-0", short)
    three = register(registry_url, f"{pipeline.name}-3", THIRD)
    values = [order(THIRD, each, city=city, tags=["x"]) for each, city in [("a", "Rome"), ("b", None), ("c", "\0")]]
    send(pipeline, *(frame(three, value) for value in values), frame(zero, encode(short, {"message_id": "d"})))
    batch = take(pipeline)
    assert read_rests(pipeline) == {
        "a": {"city": "Rome", "tags": ["x"], "amount": 1.5},
        "b": {"city": None, "tags": ["x"], "amount": 1.5},
        "d": None,
    }
    assert errors_of(pipeline) == ["_rest (jsonb) cannot hold U+0000"]
    assert "no_unknown_fields" not in checks_of(batch.batch_id)
    assert verify_pipeline(pipeline.config).holds


def read_rests(pipeline: TestPipeline) -> Mapping[str, Any]:
    """What is kept, by message id."""
    if pipeline.config.sink.type == "postgres":
        return dict(pipeline.query("select message_id, _rest from {target}"))
    found = {row["message_id"]: row["_rest"] for row in pipeline.read_output()}
    return {each: json.loads(rest) if isinstance(rest, str) else rest for each, rest in found.items()}


@pytest.mark.parametrize("into", ["table", "lake"])
def test_fields_of_a_new_schema_become_columns(workplace: Workplace, registry_url: str, into: str) -> None:
    source = {"schema": "message_id string", "unknown_fields": "add"}
    pipeline = create(workplace, into, source=source, sink={"evolve": "add"})
    two = register(registry_url, pipeline.name, THIRD)
    send(pipeline, frame(two, order(THIRD, "a", city="Rome", tags=["x"])))
    run_batch.run_once(pipeline.platform(), "run")
    assert read_texts(pipeline) == [("a", "1.50", "Rome", '["x"]')]


def read_texts(pipeline: TestPipeline) -> list[tuple[Any, ...]]:
    if pipeline.writes_elsewhere:
        return [(row["message_id"], row["amount"], row["city"], row["tags"]) for row in pipeline.read_output()]
    return pipeline.query("select message_id, amount, city, tags from {target}")


GUID = UUID("1b4e28ba-2fa1-11d2-883f-0016d3cca427")
UNKNOWN_GUID = UUID(int=7)
HEADER = "__value_schema_id"


def name_by_guid(guid: UUID) -> list[tuple[str, bytes]]:
    """The header that Confluent's serializers write."""
    return [(HEADER, b"\1" + guid.bytes)]


def test_schema_is_named_by_a_header_and_a_replay_needs_no_registry(
    workplace: Workplace, registry_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The gate answers for the GUIDs, which the local registry does not know; ids are the registry's own."""
    way = name()
    known = json.dumps({"guid": str(GUID), "schema": json.dumps(SECOND)})
    unknown = json.dumps({"error_code": 40403, "message": "Schema not found"})
    with open_gate(registry_url) as gate:
        monkeypatch.setenv(f"AIRFLOW_CONN_{way.upper()}", json.dumps({"conn_type": "http", "host": gate.url}))
        pipeline = create(workplace, source={"framing": "header", "registry": way})
        one = register(registry_url, pipeline.name, FIRST)
        send(pipeline, order(SECOND, "a", city="Oslo"), headers=name_by_guid(GUID))
        send(pipeline, order(FIRST, "b"))
        send(pipeline, order(FIRST, "c"), headers=[(HEADER, frame(one))])
        send(pipeline, order(FIRST, "d"), headers=[(HEADER, frame(one, b"junk"))])
        send(pipeline, order(SECOND, "e", city=None), headers=name_by_guid(UNKNOWN_GUID))
        # Writers are asked for in the order of their first records; an unknown one is asked for again.
        gate.answers = [Answer(200, known), None, *[Answer(404, unknown)] * (1 + ASKED_AGAIN)]
        run_batch.run_once(pipeline.platform(), "run")
        ways = [each.rpartition("/schemas/")[2] for each in gate.asked]
        assert ways == [f"guids/{GUID}", f"ids/{one}", *[f"guids/{UNKNOWN_GUID}"] * (1 + ASKED_AGAIN)]
    before = [("a", Decimal("1.50"), "Oslo", None), ("c", Decimal("1.50"), None, None)]
    assert read(pipeline) == before
    assert errors_of(pipeline) == [
        "it has no header __value_schema_id",
        "its header __value_schema_id: it is longer than a schema id",
        f"schema {UNKNOWN_GUID} is unknown to the registry",
    ]
    assert verify_pipeline(pipeline.config).holds
    everything = Replay((OffsetRange(TopicPartition(pipeline.name, 0), 0, 1),))
    batch = plans.plan_replay(pipeline.platform(), everything, "again", Decision("ana", "again"), "again")
    assert batch is not None
    run_batch.take_through(pipeline.platform(), batch.batch_id, "again")
    assert read(pipeline) == before
    used = json.loads(batchledger("schema", pipeline.name, "--json").stdout)["writer_schemas"]
    assert {(each["id"], each["batches"]) for each in used} == {(str(GUID), 2), (one, 1)}


def test_record_of_an_unknown_guid_comes_in_when_it_is_registered(
    workplace: Workplace, registry_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    way = name()
    with open_gate(registry_url) as gate:
        monkeypatch.setenv(f"AIRFLOW_CONN_{way.upper()}", json.dumps({"conn_type": "http", "host": gate.url}))
        pipeline = create(workplace, source={"framing": "header", "registry": way})
        send(pipeline, order(FIRST, "a"), headers=name_by_guid(UNKNOWN_GUID))
        gate.answers = [Answer(404, json.dumps({"error_code": 40403}))] * (1 + ASKED_AGAIN)
        run_batch.run_once(pipeline.platform(), "run")
        assert errors_of(pipeline) == [f"schema {UNKNOWN_GUID} is unknown to the registry"]
        gate.answers = [Answer(200, json.dumps({"schema": json.dumps(FIRST)}))]
        done = batchledger("quarantine", "replay", pipeline.name, "--all", "--reason", "its schema is registered")
        assert done.returncode == 0, done.stderr
    assert [row[0] for row in read(pipeline)] == ["a"]
    assert verify_pipeline(pipeline.config).holds


@pytest.mark.parametrize("into", ["table", "lake"])
def test_reader_schema_gives_defaults_and_aliases_and_a_replay_the_same_rows(
    workplace: Workplace, registry_url: str, monkeypatch: pytest.MonkeyPatch, into: str
) -> None:
    """A newer version changes nothing, and neither does a registry that is away."""
    way = name()
    amount = FIRST["fields"][1]["type"]
    reader = {
        "type": "record",
        "name": "order",
        "fields": [
            {"name": "message_id", "type": "string"},
            {"name": "amount", "type": amount},
            {"name": "town", "type": "string", "aliases": ["city"], "default": "Bern"},
            {"name": "tags", "type": {"type": "array", "items": "string"}, "default": ["new"]},
        ],
    }
    newer = {**reader, "fields": [*reader["fields"][:2], {**reader["fields"][2], "default": "Rome"}]}
    columns = "message_id string, amount decimal(8,2), town as city string, tags array<string>"
    with open_gate(registry_url) as gate:
        monkeypatch.setenv(f"AIRFLOW_CONN_{way.upper()}", json.dumps({"conn_type": "http", "host": gate.url}))
        source = {"registry": way, "schema": columns, "reader_schema": 1}
        pipeline = create(workplace, into, source=source, limits={"max_records": 2})
        register(registry_url, f"{pipeline.name}-value", reader)
        one = register(registry_url, f"{pipeline.name}-first", FIRST)
        three = register(registry_url, f"{pipeline.name}-third", THIRD)
        send(pipeline, frame(one, order(FIRST, "a")), frame(three, order(THIRD, "b", city="Oslo", tags=["x"])))
        run_batch.run_once(pipeline.platform(), "first")
        register(registry_url, f"{pipeline.name}-value", newer)
        send(pipeline, frame(three, order(THIRD, "c", city=None, tags=[])), frame(one, order(FIRST, "d")))
        run_batch.run_once(pipeline.platform(), "second")
    price = Decimal("1.50")
    before = [
        ("a", price, "Bern", ["new"]),
        ("b", price, "Oslo", ["x"]),
        ("c", price, None, []),
        ("d", price, "Bern", ["new"]),
    ]
    assert read(pipeline) == before
    everything = Replay((OffsetRange(TopicPartition(pipeline.name, 0), 0, 4),))
    batch = plans.plan_replay(pipeline.platform(), everything, "again", Decision("ana", "again"), "again")
    assert batch is not None
    run_batch.take_through(pipeline.platform(), batch.batch_id, "again")
    assert read(pipeline) == before
    assert errors_of(pipeline) == []
    assert verify_pipeline(pipeline.config).holds


def test_reader_schema_that_the_registry_does_not_have_writes_and_sets_aside_nothing(
    workplace: Workplace, registry_url: str
) -> None:
    pipeline = create(workplace, source={"reader_schema": 9})
    one = register(registry_url, f"{pipeline.name}-value", FIRST)
    send(pipeline, frame(one, order(FIRST, "a")))
    with pytest.raises(ConfigurationError, match=f"{pipeline.name}-value version 9 cannot be used"):
        run_batch.run_once(pipeline.platform(), "run")
    assert (pipeline.count_target_rows(), errors_of(pipeline)) == (0, [])


def test_key_has_a_schema_of_its_own(workplace: Workplace, registry_url: str) -> None:
    key = {"format": "avro", "columns": "customer_id bigint, region string"}
    sink = {"mode": "upsert", "key": ["customer_id", "region"]}
    pipeline = create(workplace, source={"key": key, "tombstones": "delete"}, sink=sink)
    keys = record_schema(customer_id="long", region="string")
    key_id = register(registry_url, f"{pipeline.name}-key", keys)
    one = register(registry_url, pipeline.name, FIRST)

    def keyed(number: int) -> bytes:
        return frame(key_id, encode(keys, {"customer_id": number, "region": "eu"}))

    for number, message_id in [(1, "a"), (2, "b"), (1, "c")]:
        send(pipeline, frame(one, order(FIRST, message_id)), key=keyed(number))
    send(pipeline, None, key=keyed(2))
    send(pipeline, frame(one, order(FIRST, "d")), key=b"no frame")
    run_batch.run_once(pipeline.platform(), "run")
    assert pipeline.query("select customer_id, region, message_id from {target}") == [(1, "eu", "c")]
    assert errors_of(pipeline) == ["its key: it does not begin with the magic byte 0"]
    assert verify_pipeline(pipeline.config).holds


def test_schema_is_in_a_file(workplace: Workplace) -> None:
    (workplace.folder / "order.avsc").write_text(json.dumps(FIRST))
    source = {**SOURCE, "framing": "none", "schema_file": "order.avsc"}
    del source["registry"]
    pipeline = workplace.create(partitions=1, source=source)
    send(pipeline, order(FIRST, "a"))
    run_batch.run_once(pipeline.platform(), "run")
    assert read(pipeline) == [("a", Decimal("1.50"), None, None)]


@pytest.mark.parametrize("name", ["../secret.avsc", "link.avsc"])
def test_file_outside_of_the_folder_is_no_schema_and_nothing_of_it_is_shown(workplace: Workplace, name: str) -> None:
    secret = workplace.folder.parent / "secret.avsc"
    secret.write_text("root:swordfish")
    (workplace.folder / "link.avsc").unlink(missing_ok=True)
    (workplace.folder / "link.avsc").symlink_to(secret)
    source = {**SOURCE, "framing": "none", "schema_file": name}
    del source["registry"]
    pipeline = workplace.create(partitions=1, source=source)
    send(pipeline, order(FIRST, "a"))
    with pytest.raises(ConfigurationError, match="has to lie in the folder of the pipeline file") as refused:
        run_batch.run_once(pipeline.platform(), "run")
    assert "swordfish" not in str(refused.value)


def test_row_is_updated_and_deleted_by_its_key(workplace: Workplace, registry_url: str) -> None:
    sink = {"mode": "upsert", "key": ["message_id"]}
    pipeline = create(workplace, source={"tombstones": "delete"}, sink=sink)
    two = register(registry_url, pipeline.name, SECOND)
    for key, city in [(b"a", "Rome"), (b"b", "Oslo"), (b"a", "Bern")]:
        send(pipeline, frame(two, order(SECOND, key.decode(), city=city)), key=key)
    send(pipeline, None, key=b"b")
    run_batch.run_once(pipeline.platform(), "run")
    assert [row[:3] for row in read(pipeline)] == [("a", Decimal("1.50"), "Bern")]


def test_registry_that_has_no_connection_is_refused_before_a_batch_is_opened(workplace: Workplace) -> None:
    pipeline = create(workplace, source={"registry": "no_such_registry"})
    send(pipeline, b"\0")
    for command in ("plan", "run"):
        refused = batchledger(command, pipeline.name)
        assert refused.returncode != 0
        assert "source.registry" in refused.stderr
        assert "no_such_registry" in refused.stderr
    batches = batchledger("batches", pipeline.name, "--json")
    assert json.loads(batches.stdout)["batches"] == []


def test_schemas_of_writers_are_compared_and_listed(workplace: Workplace, registry_url: str) -> None:
    pipeline = create(workplace, source={"schema": "message_id string, amount decimal(8,2)"})
    three = register(registry_url, f"{pipeline.name}-value", THIRD)
    other = register(registry_url, f"{pipeline.name}-other", record_schema(message_id="string", amount="boolean"))
    send(pipeline, frame(three, order(THIRD, "a", city="Rome", tags=[])), frame(three), b"no frame")
    run_batch.run_once(pipeline.platform(), "run")
    by_registry = batchledger("schema", pipeline.name, "--from-registry", "--json")
    assert by_registry.returncode == 0, by_registry.stderr
    shown = json.loads(by_registry.stdout)
    assert [(each["column"], each["declare"]) for each in shown["differences"]] == [
        ("city", "city string"),
        ("tags", "tags array<string>"),
    ]
    assert shown["differences"][0]["told"] == "1 of 1 schema has it, and it is not declared"
    (used,) = shown["writer_schemas"]
    assert (used["registry"], used["id"], used["batches"]) == ("registry_default", three, 1)
    send(pipeline, frame(other, b"\2a\1"))
    by_topic = batchledger("schema", pipeline.name, "--from-topic", "--json")
    assert by_topic.returncode == 3
    shown = json.loads(by_topic.stdout)
    assert (shown["sample"]["records"], shown["sample"]["unreadable"]) == (3, 1)
    (broken,) = [each for each in shown["differences"] if each["change"] == "breaking"]
    assert broken["column"] == "amount"
    assert "field amount is boolean" in broken["told"]


def test_schemas_of_writers_are_compared_by_the_names_of_the_readers_schema(
    workplace: Workplace, registry_url: str
) -> None:
    """A difference is breaking if the decoder would set every record aside."""
    columns = "message_id string, town decimal(8,2)"
    pipeline = create(workplace, source={"schema": columns, "reader_schema": 1})
    town = {"name": "town", "type": "boolean", "aliases": ["city"], "default": False}
    reader, old = record_schema(message_id="string"), record_schema(message_id="string", city="boolean")
    register(registry_url, f"{pipeline.name}-value", {**reader, "fields": [*reader["fields"], town]})
    one = register(registry_url, f"{pipeline.name}-value", old)
    send(pipeline, frame(one, encode(old, {"message_id": "a", "city": True})))
    for way in ("--from-registry", "--from-topic"):
        done = batchledger("schema", pipeline.name, way, "--json")
        assert done.returncode == 3, done.stderr
        (found,) = [each for each in json.loads(done.stdout)["differences"] if "declared" in each["told"]]
        assert (found["column"], found["change"]) == ("town", "breaking")
        assert "field city is boolean, which a column of type decimal(8,2) never holds" in found["told"]
    run_batch.run_once(pipeline.platform(), "run")
    assert errors_of(pipeline) == [
        f"schema {one}: field city is boolean, which a column of type decimal(8,2) never holds"
    ]
