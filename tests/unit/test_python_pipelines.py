"""A pipeline of a DAG file and its file are one model: what is written is read again, and nothing is lost unnoticed."""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from datetime import UTC, date, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any, get_args

import pytest
import yaml
from airflow.sdk.exceptions import AirflowFailException
from airflow.sdk.execution_time.context import set_current_context
from hypothesis import assume, given
from hypothesis import strategies as st
from pydantic import ValidationError

from batchledger.airflow import Iceberg, Pipeline, Source, Table, Topic
from batchledger.config.check_entries import CheckEntry
from batchledger.config.documents import LARGEST_BYTES
from batchledger.config.pipeline_file import PipelineConfig, read_pipeline_file
from batchledger.config.places import PIPELINES_VARIABLE
from batchledger.config.python_pipelines import says_the_same, write_keys
from batchledger.interfaces.airflow import tasks
from batchledger.model.balance import HolePolicy
from batchledger.model.batch import DeliveryMode
from batchledger.model.errors import ConfigurationError
from batchledger.model.records.rules import Evolution, HeaderForm, TombstonePolicy, UnknownFieldPolicy
from batchledger.model.requests import TwoPersonOrder
from batchledger.settings.values import find_section
from batchledger.sinks.kinds import KINDS as SINKS
from batchledger.sinks.kinds import find_kind
from tests.unit.test_json_schema import TAKEN, takes

SCHEMA = "id bigint, amount double, note string, at timestamp"
ORDERS: dict[str, Any] = {"source": Source(topics=["orders"], schema=SCHEMA), "sink": Table(table="orders")}
WORDS = st.text(min_size=1, max_size=20)
NAMES = st.from_regex(r"[A-Za-z0-9_.-]{1,9}", fullmatch=True)
TABLES = st.from_regex(r"[a-z_][a-z0-9_]{0,9}", fullmatch=True)
COLUMNS = st.lists(st.sampled_from(["id", "at", "note"]), min_size=1, unique=True)
DURATIONS = st.one_of(
    st.integers(86_400, 10**6).map("{}s".format), st.integers(24, 99).map("{} h".format), st.just("36500d")
)
SHORT = st.integers(1, 3600).map("{}s".format)
DATES = st.dates() | st.datetimes() | st.datetimes(timezones=st.just(UTC))
ARGUMENTS = st.dictionaries(
    WORDS.filter(lambda name: name not in CheckEntry.model_fields),
    st.recursive(
        st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.floats(allow_nan=False) | st.text() | DATES,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
        max_leaves=6,
    ),
    max_size=3,
)
CHECKS = st.one_of(
    ARGUMENTS.map(lambda arguments: {**arguments, "type": "json:JSONDecoder"}),
    st.fixed_dictionaries(
        {"type": st.just("expect_column_values_to_match_regex"), "column": st.just("note"), "regex": st.text()},
        optional={"mostly": st.floats(0, 1), "severity": st.sampled_from(["critical", "warning", "info"])},
    ),
    st.fixed_dictionaries(
        {"type": st.just("expect_column_to_exist"), "column": st.just("id")},
        optional={"on_failure": st.sampled_from(["block", "publish"])},
    ),
)
FUNCTIONS = st.sampled_from(["shop.orders:clean", "shop.alerts:call_ana"])
SQL = st.sampled_from(["select *\nfrom rows\n", "select * from rows where note <> 'a: b # c'", "\nselect *\tfrom rows"])
OPTIONAL: Mapping[str, Mapping[str, st.SearchStrategy[Any]]] = {
    "source": {
        "connection": NAMES,
        "key": st.sampled_from(
            [{"format": "string", "columns": "k string"}, {"format": "json", "columns": "k bigint"}]
        ),
        "headers": st.just({"tenant": "header x:y string"}),
        "start": st.sampled_from(["earliest", "latest", "2026-01-02"]) | DATES.map(str),
        "holes": st.sampled_from([str(each) for each in HolePolicy]),
        "tombstones": st.sampled_from([str(each) for each in TombstonePolicy]),
        "unknown_fields": st.sampled_from([str(each) for each in UnknownFieldPolicy]),
        "protect": st.sampled_from([{"note": "drop"}, {"amount": "drop", "note": "mask"}]),
        "options": st.sampled_from([{"fetch.min.bytes": 1, "client.rack": "on"}, {"client.rack": "0x1F"}]),
    },
    "postgres": {
        "connection": NAMES,
        "mode": st.sampled_from(["append", "upsert"]),
        "key": COLUMNS,
        "version": st.sampled_from(["offset", "timestamp"]),
        "evolve": st.sampled_from([str(each) for each in Evolution]),
        "unmatched_deletions": st.sampled_from(["warning", "info"]),
    },
    "kafka": {
        "connection": NAMES,
        "key": COLUMNS,
        "format": st.sampled_from(["json", "avro"]),
        "registry": NAMES,
        "subject": st.from_regex(r"[^\s\x00-\x1f]{1,20}", fullmatch=True),
        "headers": st.sampled_from([str(each) for each in HeaderForm]),
        "transaction_timeout": SHORT,
        "accept_older_transactions": st.booleans(),
    },
    "iceberg": {
        "catalog": NAMES,
        "mode": st.sampled_from(["append", "upsert"]),
        "key": COLUMNS,
        "version": st.sampled_from(["offset", "timestamp"]),
        "evolve": st.sampled_from([str(each) for each in Evolution]),
        "partition_by": st.sampled_from([["day(at)"], ["bucket(4, id)", "id"]]),
    },
    "start_on_records": {"check_every": SHORT},
    "limits": {
        "max_records": st.integers(5, 2**62),
        "min_records": st.integers(1, 5),
        "max_delay": DURATIONS | st.just(0),
        "target_duration": SHORT,
    },
    "dedupe": {"duplicates": st.sampled_from(["drop", "block"])},
    "sequence": {"starts_at": st.integers(-5, 5), "severity": st.sampled_from(["critical", "warning"])},
    "quarantine": {"keep": DURATIONS, "max_share": st.floats(0, 1)},
    "history": {"keep": DURATIONS},
    "audit": {"newest": st.integers(1, 9)},
    "deadlines": {"lag": SHORT, "freshness": DURATIONS, "blocked": DURATIONS},
    "dag": {
        "tasks": st.sampled_from(["steps", "one"]),
        "owner": WORDS,
        "tags": st.lists(WORDS, unique=True, max_size=3),
        "pool": WORDS,
        "queue": WORDS,
        "priority": st.integers(-9, 9),
        "retries": st.integers(0, 9),
        "retry_delay": SHORT,
        "on_failure": FUNCTIONS,
        "on_retry": FUNCTIONS,
    },
}
"""What each section may say, by its keys. A kind of sink is a section of its own."""

REQUIRED: Mapping[str, Mapping[str, st.SearchStrategy[Any]]] = {
    "source": {"topics": st.lists(NAMES, min_size=1, max_size=3, unique=True), "schema": st.just(SCHEMA)},
    "postgres": {"table": TABLES | st.tuples(TABLES, TABLES).map(".".join), "type": st.just("postgres")},
    "kafka": {"topic": NAMES, "type": st.just("kafka")},
    "iceberg": {"table": st.tuples(TABLES, TABLES).map(".".join), "type": st.just("iceberg")},
    "dedupe": {"key": COLUMNS, "remember": DURATIONS},
    "sequence": {"key": st.just(["note"]), "number": st.just("id")},
}
WRITERS = st.sampled_from(
    [
        {},
        {"isolation": "read_committed"},
        {"format": "avro", "registry": "r", "framing": "header"},
        {"format": "avro", "registry": "r", "reader_schema": 2, "topics": ["orders"]},
        {"format": "protobuf", "registry": "r"},
        {"format": "protobuf", "framing": "none", "schema_file": "a: b.proto", "message": "shop.Order"},
    ]
)
"""How the writer's schema is found: keys that need each other."""
KINDS = ("postgres", "kafka", "iceberg")


def draw_section(name: str) -> st.SearchStrategy[dict[str, Any]]:
    """A section with some of its keys."""
    return st.fixed_dictionaries(dict(REQUIRED.get(name, {})), optional=dict(OPTIONAL[name]))


TOP: Mapping[str, st.SearchStrategy[Any]] = {
    "name": st.from_regex(r"[a-z][a-z0-9_]{0,9}", fullmatch=True),
    "schedule": st.sampled_from(["*/5 * * * *", "@daily", "@once"]),
    "source": st.tuples(draw_section("source"), WRITERS).map(lambda parts: parts[0] | parts[1]),
    "sink": st.one_of(*map(draw_section, KINDS)),
    "transform": FUNCTIONS | SQL.map(lambda sql: {"sql": sql}),
    "delivery": st.sampled_from([str(each) for each in DeliveryMode]),
    "checks": st.lists(CHECKS, max_size=3),
    "on_check_failure": st.sampled_from(["block", "publish"]),
    "alerts": st.lists(NAMES, unique=True, max_size=2),
    "second_person": st.lists(st.sampled_from([str(each) for each in TwoPersonOrder]), unique=True),
    "spark": NAMES,
    "ledger": NAMES,
    **{name: draw_section(name) for name in OPTIONAL if name not in ("source", *KINDS)},
}
"""The keys of a file."""
PLAIN: Mapping[str, Any] = {
    "name": "orders",
    "source": {"topics": ["orders"], "schema": SCHEMA},
    "sink": {"type": "kafka", "topic": "out", "key": ["id"]},
}


@st.composite
def contents(draw: st.DrawFn) -> dict[str, Any]:
    """What a file says: some keys of one another, because many at a time seldom go together."""
    keys = draw(st.lists(st.sampled_from([*TOP]), min_size=1, max_size=3, unique=True))
    return {**PLAIN, **{key: draw(TOP[key]) for key in keys}}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of pipeline files, which is empty."""
    monkeypatch.setenv(PIPELINES_VARIABLE, str(tmp_path))
    return tmp_path


@given(contents())
def test_what_a_file_can_say_is_written_and_read_again_without_a_loss(content: dict[str, Any]) -> None:
    try:
        pipeline = Pipeline(**content)
    except ValidationError:
        assume(False)
    text = write_keys(pipeline)
    with TemporaryDirectory() as folder:
        path = Path(folder) / f"{pipeline.name}.yaml"
        path.write_text(text, encoding="utf-8")
        read = read_pipeline_file(path)
    assert says_the_same(pipeline, read)
    assert takes(yaml.safe_load(text))


@pytest.mark.parametrize("content", TAKEN, ids=" ".join)
def test_each_sample_of_a_file_is_written_in_python_by_the_same_keys(folder: Path, content: dict[str, Any]) -> None:
    (folder / "suite.json").write_text(
        '{"expectations": [{"type": "expect_column_to_exist", "kwargs": {"column": "id"}}]}'
    )
    pipeline = Pipeline(**content)
    assert says_the_same(pipeline, read_pipeline_file(write_file(pipeline)))
    assert takes(yaml.safe_load(write_keys(pipeline)))


def test_every_key_of_every_section_is_among_what_is_drawn() -> None:
    assert TOP.keys() == PipelineConfig.model_fields.keys()
    of_writers = {"format", "registry", "framing", "schema_file", "message", "reader_schema", "isolation"}
    for name, keys in OPTIONAL.items():
        section = find_kind(name) or find_section(PipelineConfig.model_fields[name].annotation)
        assert section is not None
        drawn = {*keys, *REQUIRED.get(name, {}), *(of_writers if name == "source" else ())}
        assert drawn == {field.alias or key for key, field in section.model_fields.items()}, name
    assert {*KINDS} == {get_args(each.model_fields["type"].annotation)[0] for each in SINKS}


def test_file_has_what_is_not_as_usual_and_a_text_of_several_lines_as_such() -> None:
    sink = Topic(topic="out", format="json", transaction_timeout="120s")
    pipeline = Pipeline(
        "orders",
        source=Source(topics=["orders"], schema="id bigint", start=datetime(2026, 1, 2, tzinfo=UTC), headers={}),
        transform={"sql": "select *\nfrom rows"},
        sink=sink,
        limits={"max_records": 1_000_000, "max_delay": "0s"},
        checks=[{"type": "json:JSONDecoder", "since": date(2026, 1, 2), "severity": "critical"}],
    )
    assert write_keys(pipeline).splitlines() == [
        "name: orders",
        "source:",
        "  topics:",
        "  - orders",
        "  schema: id bigint",
        "  start: '2026-01-02T00:00:00Z'",
        "transform:",
        "  sql: |-",
        "    select *",
        "    from rows",
        "sink:",
        "  type: kafka",
        "  topic: out",
        "  transaction_timeout: 2m",
        "limits:",
        "  max_delay: 0d",
        "checks:",
        "- type: json:JSONDecoder",
        "  since: 2026-01-02",
    ]


def test_negative_control_a_date_would_be_a_text_in_json() -> None:
    since = date(2026, 1, 2)
    pipeline = Pipeline("orders", **ORDERS, checks=[{"type": "json:JSONDecoder", "since": since}])
    assert pipeline.model_dump(mode="json")["checks"][0]["since"] != since
    assert yaml.safe_load(write_keys(pipeline))["checks"][0]["since"] == since


@pytest.mark.parametrize(
    ("argument", "why"),
    [
        (("a", "b"), "another value in checks"),
        (float("nan"), "another value in checks"),
        ({1: "a"}, "a key is not text"),
        (10**50, "a whole number is none"),
        ("x" * (LARGEST_BYTES + 1), "256 KiB"),
        (object(), "type"),
    ],
    ids=["tuple", "nan", "number as key", "huge number", "huge text", "object"],
)
def test_what_a_file_cannot_say_is_refused_and_not_quoted(argument: object, why: str) -> None:
    pipeline = Pipeline("orders", **ORDERS, checks=[{"type": "json:JSONDecoder", "argument": argument}])
    with pytest.raises(ConfigurationError, match="a pipeline file cannot say") as refused:
        write_keys(pipeline)
    assert why in refused.value.why
    assert len(str(refused.value)) < 400


@pytest.mark.parametrize(
    "keys",
    [
        {"sink": {"table": "t", "password": "hunter2"}},
        {"source": {"topics": ["a"], "schema": "id bigint", "options": {"sasl.password": "hunter2"}}},
        {"alerts": ["https://ops:hunter2@host"]},
        {"limits": {"max_records": "hunter2"}},
    ],
    ids=str,
)
def test_password_is_refused_as_in_a_file_and_never_shown(folder: Path, keys: dict[str, Any]) -> None:
    (folder / "orders.yaml").write_text(yaml.safe_dump({**PLAIN, **keys}))
    with pytest.raises(ConfigurationError):
        read_pipeline_file(folder / "orders.yaml")
    with pytest.raises(ValidationError) as refused:
        Pipeline(**{**PLAIN, **keys})
    assert "hunter2" not in str(refused.value)


def test_class_says_the_type_of_a_sink_and_a_file_has_to(folder: Path) -> None:
    iceberg = Pipeline("orders", source=ORDERS["source"], sink=Iceberg(table="shop.orders"))
    assert read_pipeline_file(write_file(iceberg)).sink == iceberg.sink
    (folder / "orders.yaml").write_text(yaml.safe_dump({**PLAIN, "sink": {"topic": "out"}}))
    with pytest.raises(ConfigurationError, match="topic: unknown key"):
        read_pipeline_file(folder / "orders.yaml")


def test_task_takes_a_pipeline_whose_file_says_the_same_however_it_is_written() -> None:
    pipeline = Pipeline("orders", **ORDERS, limits={"max_delay": "2m"})
    pipeline.file.write_text(
        f"# by hand\nname: orders\nlimits: {{max_delay: 120s}}\nsource: {{schema: '{SCHEMA}', topics: [orders]}}\n"
        "sink: {type: postgres, table: orders}\n"
    )
    with in_dag_file():
        found = tasks.load(pipeline)
    assert type(found) is PipelineConfig
    assert (found.file, found.limits.max_delay) == (pipeline.file, 120)


def test_task_refuses_a_pipeline_without_a_file_and_one_whose_file_says_something_else() -> None:
    """Else the page, commands and Spark jobs would work by other rules than the task."""
    pipeline = Pipeline("orders", **ORDERS)
    with in_dag_file(), pytest.raises(AirflowFailException, match="has no file") as missing:
        tasks.load(pipeline)
    assert str(missing.value).endswith("Write the file: batchledger export /dags/nightly.py")
    write_file(Pipeline("orders", **ORDERS, limits={"max_records": 9}))
    with in_dag_file(), pytest.raises(AirflowFailException, match="says something else than its file") as differs:
        tasks.load(pipeline)
    assert "-  max_records: 9" in str(differs.value)
    assert str(differs.value).endswith("batchledger export /dags/nightly.py --replace")
    write_file(pipeline)
    with in_dag_file():
        assert says_the_same(pipeline, tasks.load(pipeline))


def write_file(pipeline: PipelineConfig) -> Path:
    pipeline.file.write_text(write_keys(pipeline), encoding="utf-8")
    return pipeline.file


def in_dag_file() -> AbstractContextManager[Any]:
    """Be a task of a DAG."""
    return set_current_context({"dag": SimpleNamespace(fileloc="/dags/nightly.py")})  # type: ignore[typeddict-item]
