"""The contract of erasure: the rows of a key go for good, the proof stays exact, and no record keeps the value."""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

from batchledger.formats.records import QUARANTINE_SCHEMA, write_headers
from batchledger.lifecycle.requirement import publish_rows
from batchledger.model.batch import Decided, Staged
from batchledger.model.erasure import ErasureKey
from batchledger.model.errors import DecisionRefusedError, TargetChangedError
from batchledger.model.offsets import OffsetRange
from batchledger.model.records.comparison import Comparison
from batchledger.model.records.rules import Upsert
from tests.contract import life
from tests.contract.decided import BY_ANA, assert_proved, record_of, rewind
from tests.contract.life import FIRST, ORDERS_0, OTHER, SECOND
from tests.contract.messages import BY_ID, Messages
from tests.contract.updates import Record, Story
from tests.contract.warehouses import Warehouse

pytestmark = pytest.mark.rules

VALUE = "orders[0]@1"
WITHOUT = [each for each in life.rows_of([FIRST, OTHER]) if each != (ORDERS_0, 1)]


def erase(warehouse: Warehouse, value: str = VALUE, *, is_kept: bool = True) -> Decided:
    decisions = warehouse.decisions if is_kept else warehouse.decisions.rehearsal
    key = ErasureKey.parse([f"message_id={value}"])
    return decisions.erase(warehouse.pipeline, key, BY_ANA, lambda access: warehouse.sink.erase(access, key))


def test_rows_of_the_key_go_and_the_record_names_no_value(warehouse: Warehouse) -> None:
    life.take_to_published(warehouse, FIRST, OTHER)
    record = record_of(erase(warehouse))
    assert life.target_coordinates(warehouse) == WITHOUT
    assert (record.kind, record.batch_id) == ("erase", None)
    assert record.before == {"rows": 1, "remembered_keys": 0}
    assert record.after == {"rows": 0, "remembered_keys": 0, "columns": ["message_id"]}
    assert VALUE not in str(record)
    proved = warehouse.prove()
    assert (proved.findings, proved.rows, proved.rows_erased, proved.offsets_without_row) == ((), 4, 1, 0)


def test_row_that_goes_otherwise_is_a_finding(warehouse: Warehouse) -> None:
    """The negative control: the proof does not take every missing row for an erased one."""
    life.take_to_published(warehouse, FIRST, OTHER)
    erase(warehouse)
    warehouse.lose_row(ORDERS_0, 2)
    assert [each.invariant for each in warehouse.prove().findings] == ["target"]


def test_erasing_again_changes_nothing(warehouse: Warehouse) -> None:
    life.take_to_published(warehouse, FIRST, OTHER)
    erase(warehouse)
    assert erase(warehouse) == Decided(None, is_new=False)
    assert [each.kind for each in warehouse.read_pipeline_decisions()] == ["erase"]


def test_dry_run_shows_the_same_and_keeps_nothing(warehouse: Warehouse) -> None:
    life.take_to_published(warehouse, FIRST, OTHER)
    shown = record_of(erase(warehouse, is_kept=False))
    assert life.target_coordinates(warehouse) == life.rows_of([FIRST, OTHER])
    assert warehouse.read_pipeline_decisions() == []
    kept = record_of(erase(warehouse))
    assert (shown.before, shown.after) == (kept.before, kept.after)


def test_replay_and_rewind_do_not_bring_the_rows_back(warehouse: Warehouse) -> None:
    life.take_to_published(warehouse, FIRST, OTHER)
    erase(warehouse)
    for number, range_ in enumerate([FIRST, OffsetRange(ORDERS_0, 1, 2)]):
        life.publish(warehouse, life.take_replay_to_audited(warehouse, range_, run=f"again-{number}"))
        proved = warehouse.prove()
        assert (proved.rows, proved.rows_erased, proved.offsets_without_row) == (4, 1, 0)
        assert life.target_coordinates(warehouse) == WITHOUT
        assert_proved(warehouse)
    rewind(warehouse, {ORDERS_0: 0})
    life.take_to_published(warehouse, FIRST, run="run-2")
    assert life.target_coordinates(warehouse) == WITHOUT
    assert (warehouse.prove().findings, warehouse.prove().rows_erased) == ((), 1)


def test_row_comes_back_if_its_key_is_not_remembered(warehouse: Warehouse) -> None:
    """The negative control: what is remembered keeps it away."""
    life.take_to_published(warehouse, FIRST, OTHER)
    erase(warehouse)
    warehouse.forget_erasures()
    life.publish(warehouse, life.take_replay_to_audited(warehouse, FIRST))
    assert life.target_coordinates(warehouse) == life.rows_of([FIRST, OTHER])


def test_erasure_while_a_rewound_pipeline_has_not_caught_up_covers_what_was_read_before(warehouse: Warehouse) -> None:
    life.take_to_published(warehouse, FIRST, OTHER)
    rewind(warehouse, {ORDERS_0: 0})
    erase(warehouse)
    life.take_to_published(warehouse, FIRST, run="run-2")
    assert life.target_coordinates(warehouse) == WITHOUT
    assert_proved(warehouse)


def test_erased_row_that_a_replay_has_written_is_counted_with_the_replay(warehouse: Warehouse) -> None:
    life.take_to_published(warehouse, FIRST, OTHER)
    life.publish(warehouse, life.take_replay_to_audited(warehouse, OffsetRange(ORDERS_0, 1, 3)))
    erase(warehouse)
    assert life.target_coordinates(warehouse) == WITHOUT
    assert (warehouse.prove().findings, warehouse.prove().rows_erased) == ((), 1)


def test_records_that_were_read_after_the_erasure_are_published(warehouse: Warehouse) -> None:
    messages = Messages(warehouse)
    messages.live(p0="ab")
    erase(warehouse, "a")
    messages.live(p0="a")
    messages.replay(OffsetRange(ORDERS_0, 0, 3))
    assert messages.ids() == "ba"
    assert record_of(erase(warehouse, "a")).before == {"rows": 1, "remembered_keys": 0}
    messages.replay(OffsetRange(ORDERS_0, 0, 3))
    assert messages.ids() == "b"


def test_message_keys_go_and_the_balance_keeps_the_duplicates(warehouse: Warehouse) -> None:
    messages = Messages(warehouse.with_rules(BY_ID))
    messages.live(p0="aab")
    assert record_of(erase(messages.warehouse, "a")).before == {"rows": 1, "remembered_keys": 1}
    assert messages.duplicates() == [((ORDERS_0, 1), (ORDERS_0, 0))]
    for _ in range(2):
        assert messages.ids() == "b"
        assert [at for at, _ in messages.warehouse.read_message_keys()] == [(ORDERS_0, 2)]
        messages.replay(OffsetRange(ORDERS_0, 0, 3))
    assert messages.warehouse.prove().rows_erased == 2
    messages.replay(OffsetRange(ORDERS_0, 1, 2))
    assert messages.ids() == "b"


def test_retry_of_at_least_once_counts_what_it_erases_once(warehouse: Warehouse) -> None:
    """Killed between the two commits, each attempt counts the erased row."""
    messages = Messages(warehouse.with_rules(BY_ID))
    messages.live(p0="ab")
    erase(messages.warehouse, "a")
    rewind(messages.warehouse, {ORDERS_0: 0})
    attempt = messages.stage_live(p0="")
    for _ in range(2):
        with messages.warehouse.ledger.publication(attempt) as publication:
            publish_rows(messages.warehouse.sink, publication, publication.load())
            publication.mark_rows()
    messages.publish(attempt)
    assert (messages.ids(), messages.warehouse.prove().rows_erased) == ("b", 1)


def test_older_record_of_an_updated_key_does_not_take_the_place_of_the_erased_one(warehouse: Warehouse) -> None:
    messages = Messages(warehouse.with_rules(upsert=Upsert(("message_id",))))
    messages.live(p0="aba")
    erase(messages.warehouse, "a")
    for until in (1, 3):
        messages.replay(OffsetRange(ORDERS_0, 0, until))
        assert messages.ids() == "b"


def test_remembered_deletion_of_the_key_goes_and_no_older_record_brings_the_key_back(warehouse: Warehouse) -> None:
    story = Story(warehouse.with_rules(upsert=Upsert(("carrier",))))
    story.publish(Record("AA", 1), Record("UA", 2))
    story.publish(Record("AA", None))
    key = ErasureKey.parse(["carrier=AA"])
    decided = warehouse.decisions.erase(
        warehouse.pipeline, key, BY_ANA, lambda access: story.warehouse.sink.erase(access, key)
    )
    assert record_of(decided).before == {"rows": 0, "remembered_keys": 1}
    assert story.warehouse.count_deleted_keys() == 0
    story.replay(OffsetRange(ORDERS_0, 0, 1))
    assert story.state() == {("UA", 1): 2}


@pytest.mark.parametrize(
    ("rules", "said"),
    [
        ({}, Comparison(unchanged=2, erased_again=2)),
        ({"deduplication": BY_ID}, Comparison(unchanged=2, erased_again=2)),
        ({"upsert": Upsert(("message_id",))}, Comparison(unchanged=2, erased_again=2)),
    ],
    ids=["append", "duplicates dropped", "upsert"],
)
def test_comparison_says_what_is_erased_again_and_not_that_it_is_added(
    warehouse: Warehouse, rules: dict[str, Any], said: Comparison
) -> None:
    messages = Messages(warehouse.with_rules(**rules))
    messages.live(p0="abac")
    erase(messages.warehouse, "a")
    replay = messages.stage_replay(OffsetRange(ORDERS_0, 0, 4))
    assert messages.warehouse.sink.compare(replay, 20) == said
    messages.publish(replay)
    ranges = messages.warehouse.load_published_history().ranges
    assert [each.rows_erased for each in ranges if each.batch_id == replay.batch.batch_id] == [said.erased_again]
    messages.live(p0="a")
    late = messages.stage_replay(OffsetRange(ORDERS_0, 4, 5))
    assert messages.warehouse.sink.compare(late, 20) == Comparison(unchanged=1)


def test_comparison_says_that_a_row_goes_whose_record_has_an_erased_key_now(warehouse: Warehouse) -> None:
    messages = Messages(warehouse)
    messages.live(p0="abc")
    erase(warehouse, "a")
    replay = messages.stage_replay(OffsetRange(ORDERS_0, 0, 3), ids={(ORDERS_0, 1): "a"})
    assert warehouse.sink.compare(replay, 20) == Comparison(removed=1, unchanged=1, erased_again=2)
    messages.publish(replay)
    assert messages.ids() == "c"


def test_pipeline_that_has_published_nothing_refuses_the_erasure(warehouse: Warehouse) -> None:
    with pytest.raises(DecisionRefusedError, match="is not there"):
        erase(warehouse)
    assert warehouse.read_pipeline_decisions() == []


def test_table_that_is_not_the_pipelines_own_refuses_the_erasure(warehouse: Warehouse) -> None:
    life.take_to_published(warehouse, FIRST, OTHER)
    warehouse.replace_target()
    with pytest.raises(TargetChangedError):
        erase(warehouse)


@pytest.mark.parametrize("lane", ["live", "replay"])
def test_open_batch_refuses_the_erasure_because_its_staging_may_hold_the_key(warehouse: Warehouse, lane: str) -> None:
    life.take_to_published(warehouse, FIRST, OTHER)
    if lane == "live":
        life.take_to_audited(warehouse, SECOND, run="run-2")
    else:
        life.take_replay_to_audited(warehouse, FIRST)
    with pytest.raises(DecisionRefusedError, match="is open"):
        erase(warehouse)
    assert life.target_coordinates(warehouse) == life.rows_of([FIRST, OTHER])


def test_quarantine_loses_what_holds_the_key_and_names_what_may(warehouse: Warehouse) -> None:
    values = [b'{"message_id": "a", "amount": "?"}', b'{"message_id": "b"}', b'{"message_id": "a', b"{"]
    _publish_quarantined(warehouse, OffsetRange(ORDERS_0, 0, 6), values)
    decided = erase(warehouse, "a")
    left = [each.offset for each in warehouse.ledger.find_quarantined(warehouse.pipeline, None)]
    assert left == [1, 2, 3]
    assert (record_of(decided).before or {})["quarantined"] == {"orders[0] 0..1": 1}
    assert "orders[0] 2..3" in decided.warning
    proved = warehouse.prove()
    assert (proved.findings, proved.quarantine_dropped, proved.rows_erased) == ((), 1, 0)


def test_quarantine_loses_a_record_whose_header_holds_the_key(warehouse: Warehouse) -> None:
    _publish_quarantined(warehouse, OffsetRange(ORDERS_0, 0, 3), [b"{"], write_headers([("message_id", b"a")]))
    assert (record_of(erase(warehouse, "a")).before or {})["quarantined"] == {"orders[0] 0..1": 1}
    assert warehouse.prove().findings == ()


def _publish_quarantined(
    warehouse: Warehouse, range_: OffsetRange, values: Sequence[bytes], headers: str | None = None
) -> None:
    """Publish a live batch whose first records are quarantined with these values and headers."""
    attempt = warehouse.ledger.open_attempt(life.store(warehouse, range_).batch_id, "run-1")
    places = life.rows_of([range_])
    records = life.quarantine_of(places[: len(values)]).to_pylist()
    changed = [{**record, "value": value, "headers": headers} for record, value in zip(records, values, strict=True)]
    quarantined = pa.RecordBatch.from_pylist(changed, schema=QUARANTINE_SCHEMA)
    life.witness(warehouse.evidence.open(attempt), 0, [range_], quarantined)
    rows = life.batch_of_rows(places[len(values) :])
    life.write(warehouse.sink.open_staging(attempt, rows.schema), 0, rows)
    warehouse.sink.seal_staging(attempt, [0])
    warehouse.ledger.mark_staged(attempt, Staged(rows.num_rows))
    life.audit(warehouse, attempt)
    life.publish(warehouse, attempt)
