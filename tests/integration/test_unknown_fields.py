"""Records of a real topic with fields that the pipeline file does not declare: named, and none is lost in silence."""

import json
from collections.abc import Mapping
from typing import Any

import pytest

from batchledger.lifecycle import run_batch
from batchledger.model.batch import BatchState
from batchledger.model.errors import BatchBlockedError
from batchledger.wiring import verify_pipeline
from tests.faults.run_and_die import run_until_killed
from tests.integration.test_cli import ask
from tests.integration.test_planted_faults import checks_of, take
from tests.support import TestPipeline, Workplace

SCHEMA = "message_id string, note string"


def create(workplace: Workplace, policy: str, **file: Any) -> TestPipeline:
    """A pipeline of one partition whose topic has five records: the third and the fourth have a discount."""
    pipeline = workplace.create(partitions=1, source={"schema": SCHEMA, "unknown_fields": policy}, **file)
    documents: list[Mapping[str, Any]] = [{"message_id": each, "note": "n"} for each in "abcde"]
    documents[2:4] = [{**each, "discount": 3, "tax": None} for each in documents[2:4]]
    pipeline.send_raw((0, json.dumps(each).encode()) for each in documents)
    return pipeline


def test_warning_names_the_fields_and_where_they_came_first(workplace: Workplace) -> None:
    pipeline = create(workplace, "warn")
    check = checks_of(take(pipeline).batch_id)["no_unknown_fields"]
    assert (check["outcome"], check["severity"]) == ("failed", "warning")
    assert check["observed"]["rows"] == 5
    first = {"records": 2, "first": f"{pipeline.name}[0]@2"}
    assert check["observed"]["fields"] == {"discount": first, "tax": first}
    assert "2; of 5 rows: discount in 2, tax in 2." in check["detail"]
    assert pipeline.count_target_rows() == 5
    # The next batch has none: the warning is over.
    pipeline.send_raw([(0, b'{"message_id": "f"}')])
    assert checks_of(take(pipeline).batch_id)["no_unknown_fields"]["outcome"] == "passed"


def test_block_keeps_the_batch_invisible_until_the_field_is_declared(workplace: Workplace) -> None:
    pipeline = create(workplace, "block")
    with pytest.raises(BatchBlockedError, match="no_unknown_fields") as blocked:
        take(pipeline)
    assert pipeline.count_target_rows() == 0
    observed = checks_of(blocked.value.batch_id)["no_unknown_fields"]["observed"]
    assert observed["coordinates"] == [f"{pipeline.name}[0]@2 ({name})" for name in ("discount", "tax")]
    pipeline.path.write_text(pipeline.path.read_text().replace(SCHEMA, f"{SCHEMA}, discount int, tax int"))
    batch = run_batch.take_through(pipeline.platform(), blocked.value.batch_id, "again")
    assert batch.state is BatchState.PUBLISHED
    assert pipeline.query("select message_id, discount from {target} order by 1") == [
        ("a", None),
        ("b", None),
        ("c", 3),
        ("d", 3),
        ("e", None),
    ]


def test_quarantine_sets_aside_the_records_that_have_such_fields(workplace: Workplace) -> None:
    pipeline = create(workplace, "quarantine")
    shown = ask("batch", str(take(pipeline).batch_id))
    (balance,) = shown["ranges"]
    assert (balance["accepted"], balance["quarantined"], balance["unexplained"]) == (3, 2, 0)
    assert "no_unknown_fields" not in {each["name"] for each in shown["checks"]}
    query = 'select "offset", error from batchledger.quarantine where pipeline = %s order by "offset"'
    assert pipeline.query(query, pipeline.name) == [
        (2, "field discount is not declared"),
        (3, "field discount is not declared"),
    ]


def test_control_without_the_contract_the_fields_are_lost_and_nothing_says_so(workplace: Workplace) -> None:
    pipeline = create(workplace, "ignore")
    checks = checks_of(take(pipeline).batch_id)
    assert {each["outcome"] for each in checks.values()} == {"passed"}
    assert "no_unknown_fields" not in checks
    assert pipeline.count_target_rows() == 5
    assert "discount" not in json.dumps(checks)


def test_field_that_records_bring_gets_a_text_column_with_the_batch_that_has_it_first(workplace: Workplace) -> None:
    pipeline = create(workplace, "add", sink={"evolve": "add"})
    batch = take(pipeline)
    # The stream was given up, and the same attempt has staged the rows with the columns.
    assert batch.attempt == 1
    rows = [("a", None, None), ("b", None, None), ("c", "3", None), ("d", "3", None), ("e", None, None)]
    assert pipeline.query("select message_id, discount, tax from {target} order by 1") == rows
    assert checks_of(batch.batch_id)["no_unknown_fields"]["outcome"] == "passed"
    assert ask("batch", str(batch.batch_id))["attempts"][-1]["schema"] == f"{SCHEMA}, discount string, tax string"
    # The next batch knows the column, whether its records have the field or not.
    pipeline.send_raw([(0, b'{"message_id": "f"}'), (0, b'{"message_id": "g", "discount": {"a": 1.10}}')])
    assert take(pipeline).attempt == 1
    assert pipeline.query("select discount from {target} where message_id >= 'f' order by message_id") == [
        (None,),
        ('{"a": 1.10}',),
    ]
    assert verify_pipeline(pipeline.config).holds


@pytest.mark.parametrize("into", ["lake", "topic"])
def test_field_that_records_bring_reaches_every_kind_of_target(workplace: Workplace, into: str) -> None:
    pipeline = create(workplace, "add", into=into, sink={"evolve": "add"} if into == "lake" else {})
    take(pipeline)
    assert sorted((row["message_id"], row["discount"]) for row in pipeline.read_output()) == [
        ("a", None),
        ("b", None),
        ("c", "3"),
        ("d", "3"),
        ("e", None),
    ]


def test_names_without_end_end_the_adding_and_are_named(workplace: Workplace) -> None:
    pipeline = workplace.create(
        partitions=1, source={"schema": SCHEMA, "unknown_fields": "add"}, sink={"evolve": "add"}
    )
    names = {f"n{number:03}": number for number in range(100)}
    pipeline.send_raw([(0, json.dumps({"message_id": "a", "Note": 1, "a b": 2, **names}).encode())])
    batch = take(pipeline)
    assert batch.attempt == 4
    check = checks_of(batch.batch_id)["no_unknown_fields"]
    assert (check["outcome"], check["severity"]) == ("failed", "warning")
    assert {"Note", "a b", "n098"} <= {*check["observed"]["fields"], "n098"}
    added = [name for name in pipeline.read_columns() if name in names]
    assert 50 <= len(added) < len(names)
    # What was added stays, and the next batch goes on with what is left.
    pipeline.send_raw([(0, json.dumps({"message_id": "b", **names}).encode())])
    take(pipeline)
    assert {*names} <= pipeline.read_columns().keys()


def test_field_that_is_declared_meanwhile_counts_as_it_is_declared(workplace: Workplace) -> None:
    pipeline = create(workplace, "add", sink={"evolve": "add"})
    take(pipeline)
    declared = f"{SCHEMA}, discount int"
    pipeline.path.write_text(pipeline.path.read_text().replace(SCHEMA, declared))
    pipeline.send_raw([(0, b'{"message_id": "f", "discount": 7}'), (0, b'{"message_id": "g", "discount": "x"}')])
    batch = take(pipeline)
    assert ask("batch", str(batch.batch_id))["attempts"][-1]["schema"] == f"{declared}, tax string"
    assert pipeline.query("select discount from {target} where message_id = 'f'") == [("7",)]
    assert pipeline.query("select count(*) from batchledger.quarantine where pipeline = %s", pipeline.name) == [(1,)]


def test_dry_run_adds_no_column(workplace: Workplace) -> None:
    pipeline = create(workplace, "ignore", sink={"evolve": "add"})
    take(pipeline)
    pipeline.path.write_text(pipeline.path.read_text().replace("unknown_fields: ignore", "unknown_fields: add"))
    ask("replay", pipeline.name, "--range", f"{pipeline.name}[0] 0..5", "--dry-run", "--reason", "to see it")
    assert pipeline.query("select count(*) from batchledger.added_column where pipeline = %s", pipeline.name) == [(0,)]
    assert "discount" not in pipeline.read_columns()


@pytest.mark.parametrize("point", ["staging_sealed", "staged", "before_commit"])
def test_run_that_is_killed_while_it_adds_columns_leaves_the_next_one_nothing_to_repair(
    workplace: Workplace, point: str
) -> None:
    pipeline = create(workplace, "add", sink={"evolve": "add"})
    run_until_killed(pipeline.name, "killed", point)
    assert pipeline.count_target_rows() == 0
    run_batch.run_once(pipeline.platform(), "next")
    assert pipeline.query("select count(*), count(discount) from {target}") == [(5, 2)]
    assert verify_pipeline(pipeline.config).holds
