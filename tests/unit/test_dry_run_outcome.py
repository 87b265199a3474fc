"""What the ledger keeps of a dry run: plain JSON that is read back as it was, and never a value of a record."""

import json
from string import ascii_letters, digits
from typing import TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchledger.model.batch import HeldRange
from batchledger.model.offsets import LARGEST_OFFSET, LARGEST_PARTITION, OffsetRange, TopicPartition
from batchledger.model.records.comparison import ChangedRow, Comparison, DryRunOutcome, ReplacedRows

T = TypeVar("T")
ORDERS_0 = TopicPartition("orders", 0)
OUTCOME = DryRunOutcome(
    expired=(OffsetRange(ORDERS_0, 0, 5),),
    replaced=(ReplacedRows(HeldRange(1, OffsetRange(ORDERS_0, 5, 8)), 3),),
    comparison=Comparison(1, 0, 2, 3, (ChangedRow(ORDERS_0, 5, ("amount",)),), ("note",), 0, 4),
    objections=("no_duplicate_offsets: 2 offsets twice",),
    notes=("2 records come along",),
)
COMPARISON = {
    "added": 1, "removed": 0, "changed": 2, "unchanged": 3, "repeated": 0, "erased_again": 4,
    "absent_columns": ["note"],
    "examples": [{"where": "orders[0]@5", "columns": ["amount"]}],
}  # fmt: skip
AS_JSON = {
    "expired": ["orders[0] 0..5"],
    "replaced": [{"batch_id": 1, "range": "orders[0] 5..8", "rows": 3}],
    "comparison": COMPARISON,
    "objections": ["no_duplicate_offsets: 2 offsets twice"],
    "notes": ["2 records come along"],
}  # fmt: skip
NOTHING = {"expired": [], "replaced": [], "comparison": None, "objections": [], "notes": []}

counts = st.integers(min_value=0, max_value=LARGEST_OFFSET)
numbers = st.integers(min_value=0, max_value=LARGEST_PARTITION)
texts = st.text(max_size=20)
partitions = st.builds(TopicPartition, st.text(ascii_letters + digits + "._-", min_size=1, max_size=9), numbers)
ranges = st.builds(
    lambda partition, bounds: OffsetRange(partition, *sorted(bounds)), partitions, st.tuples(counts, counts)
)


def several(each: st.SearchStrategy[T]) -> st.SearchStrategy[tuple[T, ...]]:
    return st.lists(each, max_size=3).map(tuple)


outcomes = st.builds(
    DryRunOutcome,
    several(ranges),
    several(st.builds(ReplacedRows, st.builds(HeldRange, counts, ranges), counts)),
    st.none()
    | st.builds(
        Comparison, counts, counts, counts, counts,
        several(st.builds(ChangedRow, partitions, counts, several(texts))), several(texts), counts, counts,
    ),
    several(texts),
    several(texts),
)  # fmt: skip


@pytest.mark.parametrize(("outcome", "as_json"), [(OUTCOME, AS_JSON), (DryRunOutcome(), NOTHING)], ids=["all", "none"])
def test_outcome_is_kept_in_words_that_a_page_can_show(outcome: DryRunOutcome, as_json: object) -> None:
    assert outcome.to_json() == as_json


@given(outcomes)
def test_outcome_is_read_back_as_it_was(outcome: DryRunOutcome) -> None:
    assert DryRunOutcome.from_json(json.loads(json.dumps(outcome.to_json()))) == outcome


def test_outcome_from_before_topics_and_erasures_has_nothing_that_comes_once_more_or_is_erased_again() -> None:
    newer = ("repeated", "erased_again")
    kept = {**AS_JSON, "comparison": {key: each for key, each in COMPARISON.items() if key not in newer}}
    comparison = DryRunOutcome.from_json(kept).comparison
    assert comparison is not None
    assert (comparison.repeated, comparison.erased_again) == (0, 0)


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (Comparison(unchanged=2_473, erased_again=26), "the rows would be the same: 2,473 unchanged; 26 rows "),
        (Comparison(erased_again=26), "no row would be added, removed or changed; 26 rows "),
        (
            Comparison(added=1, erased_again=26),
            "the rows would differ: 1 added, 0 removed, 0 changed, 0 unchanged; 26 rows ",
        ),
    ],
)
def test_rows_that_are_erased_again_are_said_beside_the_others(found: Comparison, said: str) -> None:
    assert str(found) == f"{said}of erased keys would be erased again"


def test_topic_says_that_records_come_once_more() -> None:
    once_more = Comparison(repeated=5)
    assert (str(once_more), once_more.is_same) == (
        "a topic replaces nothing: 5 records would be produced once more",
        False,
    )
    assert str(Comparison(added=2, repeated=5)).endswith("produced once more, and 2 that were not there before")
