"""What changes rows by the pipeline file alone: SQL, and a module of Python that lies beside the file."""

import sys
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession

from batchledger.books.history import load_batch_history
from batchledger.lifecycle import plans, run_batch
from batchledger.model.batch import Batch, Decision
from batchledger.model.checks import IntegrityCheck
from batchledger.model.errors import BatchBlockedError, BatchledgerError, ConfigurationError
from batchledger.model.records.columns import PROVENANCE_COLUMNS
from batchledger.model.records.row_query import RowQuery, read_row_query
from batchledger.model.records.sql_words import FUNCTIONS
from batchledger.planning.replay import Replay
from batchledger.proof.verification import Verification
from batchledger.source.spark.stager import SparkStager
from batchledger.source.spark.transforms import load_transform
from batchledger.wiring import choose_stage_step, verify_pipeline
from tests.support import TestPipeline, Workplace, change_stager

EVEN = "select message_id, number, amount * 2 as doubled from rows where number % 2 = 0"
BESIDE = """
from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import functions as F

@dataclass
class Factor:
    by: int

FACTOR = Factor({factor})

@F.udf("int")
def multiply(number):
    return number * FACTOR.by

def change(rows):
    return rows.withColumn("number", multiply("number"))
"""


def run(pipeline: TestPipeline, name: str = "run") -> Batch:
    batch = run_batch.run_once(pipeline.platform(), name)
    assert batch is not None
    return batch


def prove(pipeline: TestPipeline) -> Verification:
    return verify_pipeline(pipeline.config)


def write_module(pipeline: TestPipeline, text: str) -> None:
    (pipeline.path.parent / f"{pipeline.name}.py").write_text(text)


@pytest.fixture
def session(workplace: Workplace) -> Iterator[SparkSession]:
    stager = workplace.create().platform().make_stager()
    assert isinstance(stager, SparkStager)
    with stager.open_session() as session:
        yield session


@pytest.fixture
def rows(session: SparkSession) -> DataFrame:
    """Ten rows of one partition of a topic."""
    return session.range(10).selectExpr(
        *("concat('m', id) as message_id", "cast(id as int) as number", "id / 4 as amount", "array(id, id) as items"),
        *("'t' as _topic", "0 as _partition", "id as _offset", "timestamp '2026-11-01 12:00:00' as _timestamp"),
    )


@pytest.mark.always
@pytest.mark.parametrize("into", ["table", "topic", "lake"])
def test_sql_changes_rows_and_those_it_drops_are_counted(workplace: Workplace, into: str) -> None:
    pipeline = workplace.create(into=into, transform={"sql": EVEN})
    pipeline.send(20)
    batch = run(pipeline)
    assert sum(each.filtered or 0 for each in load_batch_history(workplace.dsn, batch.batch_id).ranges) == 10
    if into == "table":
        assert pipeline.query("select number, doubled from {target} order by number, _partition, _offset") == [
            (number, number / 2) for number in range(0, 20, 2)
        ]
        assert pipeline.query("select count(distinct (_topic, _partition, _offset)) from {target}") == [(10,)]
    else:
        assert sorted(each["doubled"] for each in pipeline.read_output()) == [n / 2 for n in range(0, 20, 2)]
    assert prove(pipeline).holds


def test_replay_makes_the_same_rows_by_sql(workplace: Workplace) -> None:
    sql = "select *, hash(message_id, number) as h, date_format(_timestamp, 'yyyy-MM-dd HH') as hour from rows"
    pipeline = workplace.create(transform={"sql": sql})
    pipeline.send(30)
    first = run(pipeline)
    ask = "select message_id, number, amount, h, hour, _topic, _partition, _offset from {target} order by message_id"
    before = pipeline.query(ask)
    platform, why = pipeline.platform(), Decision("ana", "to compare")
    replay = plans.plan_replay(platform, Replay(first.ranges), "again", why, "again")
    run_batch.run_once(platform, "again", replay.batch_id)
    assert pipeline.query(ask) == before
    pipeline.assert_exact()


def test_sql_keeps_the_deletions_of_keys(workplace: Workplace) -> None:
    pipeline = workplace.create(
        source={"schema": "carrier string, delay int", "tombstones": "delete"},
        sink={"mode": "upsert", "key": ["carrier"]},
        transform={"sql": "select carrier, delay * 60 as seconds from rows"},
    )
    keys = [b'{"carrier": "AA"}', b'{"carrier": "DL"}']
    pipeline.send_keyed((0, key, key[:-1] + b', "delay": 2}') for key in keys)
    run(pipeline)
    pipeline.send_keyed([(0, keys[0], None)])
    run(pipeline, "second")
    assert pipeline.query("select carrier, seconds from {target}") == [("DL", 120)]
    assert prove(pipeline).holds


def test_value_that_sql_has_no_result_for_blocks_the_batch(workplace: Workplace) -> None:
    pipeline = workplace.create(transform={"sql": "select cast(message_id as int) as n from rows"})
    pipeline.send(4)
    with pytest.raises(BatchBlockedError, match="In transform sql a value cannot be cast"):
        run(pipeline)


@pytest.mark.parametrize(
    ("sql", "why"),
    [
        ("select case number then 1 end as x from rows", "PARSE_SYNTAX_ERROR"),
        ("select array(1) + number as x from rows", "DATATYPE_MISMATCH"),
        ("select number from rows where number", "DATATYPE_MISMATCH"),
    ],
)
def test_fault_of_grammar_or_types_is_told_when_a_batch_is_staged(workplace: Workplace, sql: str, why: str) -> None:
    pipeline = workplace.create(transform={"sql": sql})
    pipeline.send(4)
    with pytest.raises(ConfigurationError, match=rf"(?s)Spark refuses transform.sql\. Nothing is visible\..*{why}"):
        run(pipeline)
    assert pipeline.count_target_rows() == 0


def with_query(pipeline: TestPipeline, *items: str, names: tuple[str, ...]) -> Any:
    """The platform with expressions that no file may hold."""
    return change_stager(pipeline.platform(), transform=RowQuery("", items, names, None))


def test_what_would_get_past_the_reader_is_stopped_by_spark_or_the_audit(workplace: Workplace) -> None:
    """The second line: the reader of the file is left out."""
    pipeline = workplace.create(partitions=1, transform={"sql": "select * from rows"})
    pipeline.send(4)
    with pytest.raises(ConfigurationError, match="MISSING_GROUP_BY"):
        run_batch.run_once(with_query(pipeline, "sum(amount) as s", names=("s",)), "aggregate")
    with pytest.raises(ConfigurationError, match=r"(?s)in another way.*It makes the columns b"):
        run_batch.run_once(with_query(pipeline, "number as b", names=("a",)), "other")
    with pytest.raises(BatchBlockedError) as blocked:
        run_batch.run_once(with_query(pipeline, "explode(array(1, 2)) as x", names=("x",)), "generator")
    assert IntegrityCheck.NO_DUPLICATE_OFFSETS in blocked.value.failed
    assert pipeline.count_target_rows() == 0


EXPRESSIONS = [
    *("number", "amount", "items", "items[0]", "-number", "number % 3", "message_id || 'x'", "1", "'a'", "null"),
    *("upper(message_id)", "transform(items, x -> x + number)", "aggregate(items, 0L, (a, x) -> a + x)", "hash(*)"),
    *("explode(items)", "posexplode(items)", "stack(2, 1, 2)", "sum(number)", "count(*)", "max(number) over ()"),
    *("rand()", "uuid()", "(select max(id) from range(3))", "current_timestamp", "timestamp'now'", "shuffle(items)"),
    *("monotonically_increasing_id()", "row_number() over (order by number)", "inline(array(struct(1), struct(2)))"),
    *("number in (select id from range(3))", "first(number)", "number = 1", "number > 4 and amount > 1"),
]
TAILS = [
    *("", "where number > 3", "where number in (1, 2)", "limit 3", "group by number", "order by number desc limit 2"),
    *(
        "lateral view explode(items) t as x",
        "cross join range(2)",
        ", range(2)",
        "union all select 1",
        "where rand() > 0",
    ),
    "tablesample (3 rows)",
]


def compare_twice(rows: DataFrame, session: SparkSession, text: str) -> None:
    """Let Spark run what the reader accepts on the rows, divided in two ways: each row comes once at most, the same."""
    query = read_row_query(text, rows.columns)
    change = load_transform(query, PROVENANCE_COLUMNS)
    made = [{each._offset: each for each in change(rows.repartition(parts)).collect()} for parts in (1, 4)]
    assert made[0] == made[1]
    assert len(made[0]) == change(rows).count() <= 10


def test_accepted_sql_makes_at_most_one_row_of_a_row_and_the_same_each_time(
    rows: DataFrame, session: SparkSession
) -> None:
    accepted, refused = [], 0
    for number, expression in enumerate(EXPRESSIONS):
        for tail in (TAILS[number % len(TAILS)], TAILS[(5 * number + 3) % len(TAILS)], ""):
            text = f"select {expression} as x, number as n from rows {tail}"  # noqa: S608
            try:
                compare_twice(rows, session, text)
            except ValueError:
                refused += 1
            else:
                accepted.append(text)
    assert len(accepted) > 15
    assert refused > 30


def test_without_the_reader_spark_would_make_several_rows_of_one(rows: DataFrame) -> None:
    """Negative control."""
    change = load_transform(RowQuery("", ("explode(items) as x",), ("x",), None), PROVENANCE_COLUMNS)
    assert change(rows).count() == 20


def test_every_listed_function_is_one_of_spark_that_looks_at_one_row(session: SparkSession) -> None:
    """By its class and by what Spark says of it; what the grammar knows alone is no function there."""
    of_grammar = {"cast", "try_cast", "timestampadd", "timestampdiff", "varchar", "extract"}
    described = {
        name: " ".join(row.function_desc for row in session.sql(f"describe function extended `{name}`").collect())
        for name in sorted({*FUNCTIONS - of_grammar, "rand", "sum", "explode"})
    }
    wrong = {name for name, text in described.items() if not text.startswith("Function: ")}
    wrong |= {name for name, text in described.items() if "non-deterministic" in text or ".aggregate." in text}
    wrong |= {name for name, text in described.items() if any(word in text for word in ("Explode", "Generator"))}
    assert wrong == {"rand", "sum", "explode"}


def test_module_beside_the_file_runs_in_the_workers_and_a_changed_one_in_the_next_batch(workplace: Workplace) -> None:
    """Its session is kept: a module that the workers have imported would stay as it was."""
    pipeline = workplace.create(transform="to_be_named:change")
    rename(pipeline)
    write_module(pipeline, BESIDE.format(factor=10))
    pipeline.send(4)
    run(pipeline)
    write_module(pipeline, BESIDE.format(factor=1000))
    pipeline.send(4)
    run(pipeline, "second")
    assert sorted(pipeline.query("select number from {target}")) == [
        *((0,), (0,), (10,), (20,), (30,), (1000,), (2000,), (3000,))
    ]
    pipeline.assert_exact()


def rename(pipeline: TestPipeline) -> None:
    """Give the module the name of the pipeline, which no other test has."""
    content = yaml.safe_load(pipeline.path.read_text())
    pipeline.path.write_text(yaml.safe_dump({**content, "transform": f"{pipeline.name}:change"}))


def test_module_beside_the_file_would_be_unknown_to_the_workers_by_its_name(
    workplace: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Negative control: its functions do not travel with the job."""
    monkeypatch.setattr(cloudpickle, "register_pickle_by_value", lambda module: None)
    pipeline = workplace.create(transform="to_be_named:change")
    rename(pipeline)
    write_module(pipeline, BESIDE.format(factor=7))
    pipeline.send(4)
    with pytest.raises(ConfigurationError, match="No module named 'batchledger_transform_"):
        run(pipeline)


def test_change_of_the_module_between_two_steps_stages_the_batch_again(workplace: Workplace) -> None:
    pipeline = workplace.create(transform="to_be_named:change")
    rename(pipeline)
    write_module(pipeline, BESIDE.format(factor=10))
    pipeline.send(2)
    batch = plans.plan(pipeline.platform(), "run")
    assert batch is not None
    run_batch.stage(pipeline.platform(), batch.batch_id, "run")
    write_module(pipeline, BESIDE.format(factor=20))
    run_batch.audit(pipeline.platform(), batch.batch_id, "run", choose_stage_step(pipeline.config))
    run_batch.publish(pipeline.platform(), batch.batch_id, "run")
    assert sorted(pipeline.query("select number from {target}")) == [(0,), (20,)]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("import helper_beside\n", "No module named 'helper_beside'"),
        ("def other(rows): return rows\n", "has no attribute 'change'"),
        ("raise KeyError('secret')\n", r"KeyError was raised in .*\.py, line 1\."),
    ],
)
def test_module_that_cannot_be_loaded_is_refused_in_words(workplace: Workplace, text: str, words: str) -> None:
    pipeline = workplace.create(transform="to_be_named:change")
    rename(pipeline)
    write_module(pipeline, text)
    pipeline.send(2)
    with pytest.raises(ConfigurationError, match=rf"(?s)cannot be loaded.*{words}") as refused:
        run(pipeline)
    assert "secret" not in str(refused.value)
    assert f"{pipeline.name}.py" in str(refused.value)
    assert [each for each in sys.modules if each.startswith("batchledger_transform") and pipeline.name in each] == []


def test_transform_that_is_nowhere_names_both_places(workplace: Workplace) -> None:
    pipeline = workplace.create(transform="to_be_named:change")
    rename(pipeline)
    pipeline.send(2)
    with pytest.raises(BatchledgerError) as refused:
        run(pipeline)
    assert f"No module named '{pipeline.name}'" in refused.value.why
    assert f"There is no {pipeline.path.parent / pipeline.name}.py either" in refused.value.why


@pytest.mark.parametrize("transform", ["beside", {"sql": "select message_id, number * 3 as number from rows"}], ids=str)
def test_spark_submit_finds_the_same_transform(workplace: Workplace, spark_local: str, transform: Any) -> None:
    pipeline = workplace.create(
        spark=spark_local, transform="to_be_named:change" if transform == "beside" else transform
    )
    if transform == "beside":
        rename(pipeline)
        write_module(pipeline, BESIDE.format(factor=3))
    pipeline.send(4)
    run_batch.run_once(pipeline.platform(), "submitted", stage_step=choose_stage_step(pipeline.config))
    assert sorted(pipeline.query("select number from {target}")) == [(0,), (3,), (6,), (9,)]
    pipeline.assert_exact()
