"""Records of a real topic with fields that the pipeline file does not declare: named, and none is lost in silence."""

import json
from collections.abc import Mapping
from typing import Any

import pytest

from batchledger.lifecycle import run_batch
from batchledger.model.batch import BatchState
from batchledger.model.errors import BatchBlockedError
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
