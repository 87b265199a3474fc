"""The contract of the Sink port with ``sequence``: what producers have numbered is complete, or the rest is named."""

import random
from collections import Counter, defaultdict
from dataclasses import dataclass, field, replace
from datetime import timedelta

import pyarrow as pa
import pytest

from batchledger.lifecycle.requirement import publish_rows, remember_numbers
from batchledger.model.batch import Decision
from batchledger.model.errors import BatchBlockedError, ConfigurationError, StagingLostError
from batchledger.model.offsets import OffsetRange, TopicPartition
from batchledger.model.records.numbering import NumberFacts
from batchledger.model.records.rules import Deduplication, SequenceRule
from batchledger.planning.rewind import ResolvedRewind
from batchledger.ports import Publication
from tests.contract import life
from tests.contract.conftest import JUDGED_IN_DATABASE
from tests.contract.numbered import BY_DEVICE, FROM_ONE, SCHEMA, Numbered
from tests.contract.warehouses import PostgresWarehouse, Warehouse

WAREHOUSES = JUDGED_IN_DATABASE
pytestmark = pytest.mark.rules

ORDERS_0 = TopicPartition("orders", 0)
ANA = Decision("ana", "because")
NUMBERED = ("missing", "repeated", "late", "restarts", "joined")


@pytest.fixture
def orders(warehouse: Warehouse) -> Numbered:
    return Numbered(warehouse.with_rules(sequence=BY_DEVICE))


@pytest.fixture
def restarting(warehouse: Warehouse) -> Numbered:
    """The numbering begins at 1."""
    return Numbered(warehouse.with_rules(sequence=FROM_ONE))


def test_numbers_that_follow_each_other_across_batches_and_partitions_are_clean(orders: Numbered) -> None:
    assert orders.take(p0="a1 a2 b7", p1="a3") == NumberFacts(series=2)
    assert orders.take(p0="a4 b8", p1="b9 a5") == NumberFacts(series=2)
    assert orders.warehouse.read_series() == {'["a"]': (1, [1, 2, 3, 4, 5]), '["b"]': (1, [7, 8, 9])}


def test_missing_number_in_one_batch_is_counted_and_named_by_the_record_behind_the_gap(orders: Numbered) -> None:
    attempt = orders.stage(p0="a4 b1 a8 b2 b4")
    assert orders.count(attempt) == NumberFacts(series=2, missing=4, gaps=2)
    missing = ["orders[0]@2 (5..7 missing before 8)", "orders[0]@4 (3 missing before 4)"]
    assert orders.name(attempt) == (missing, [])
    assert orders.name(attempt, 1) == (missing[:1], [])


@pytest.mark.lake
def test_number_that_is_missing_between_two_batches_is_named_by_the_first_record_of_the_second(
    orders: Numbered,
) -> None:
    orders.take(p0="a1 a2")
    attempt = orders.stage(p0="a5")
    assert orders.count(attempt) == NumberFacts(series=1, missing=2, gaps=1)
    assert orders.name(attempt) == (["orders[0]@2 (3..4 missing before 5)"], [])


def test_gap_that_was_published_is_known_and_not_told_again(orders: Numbered) -> None:
    """Which is what a person's accept does."""
    assert orders.take(p0="a1 a5").missing == 3
    assert orders.take(p0="a6") == NumberFacts(series=1)
    assert orders.take(p0="a9").missing == 2


def test_late_number_fills_its_gap_and_is_told_as_late(orders: Numbered) -> None:
    orders.take(p0="a1 a4")
    assert orders.take(p0="a2 a5") == NumberFacts(series=1, late=1)
    assert orders.warehouse.read_series() == {'["a"]': (1, [1, 2, 4, 5])}
    assert orders.take(p0="a2").repeated == 1


def test_numbers_out_of_order_within_a_batch_are_complete(orders: Numbered) -> None:
    assert orders.take(p0="a3 a1", p1="a2 a4") == NumberFacts(series=1)


def test_number_that_comes_again_is_counted_and_named_in_one_batch_and_across_batches(orders: Numbered) -> None:
    orders.take(p0="a1 a2")
    attempt = orders.stage(p0="a2 a3 a3 a3")
    assert orders.count(attempt) == NumberFacts(series=1, repeated=3)
    repeated = [
        "orders[0]@2 (2 came again)",
        "orders[0]@4 (3 came again)",
        "orders[0]@5 (3 came again)",
    ]
    assert orders.name(attempt) == ([], repeated)
    assert orders.name(attempt, 1) == ([], repeated[:1])


def test_lower_number_than_the_first_one_is_late_and_the_gap_behind_it_is_named_by_it(orders: Numbered) -> None:
    orders.take(p0="a5")
    attempt = orders.stage(p0="a3")
    assert orders.count(attempt) == NumberFacts(series=1, missing=1, gaps=1, late=1)
    assert orders.name(attempt) == (["orders[0]@1 (4 missing after 3)"], [])


def test_first_number_of_a_key_opens_no_gap(orders: Numbered) -> None:
    assert orders.take(p0="a100") == NumberFacts(series=1)


def test_number_of_a_record_that_was_set_aside_has_arrived(orders: Numbered) -> None:
    """The negative control: a number that no record brought is missing in the same batch."""
    assert orders.take(p0="a1 a2! a3 b1 b3") == NumberFacts(series=2, missing=1, gaps=1)
    assert orders.warehouse.read_series()['["a"]'] == (1, [1, 2, 3])
    assert orders.take(p0="a4!") == NumberFacts(series=1)
    assert orders.take(p0="a5 a4") == NumberFacts(series=1, repeated=1)


def test_record_that_was_set_aside_repeats_nothing(orders: Numbered) -> None:
    attempt = orders.stage(p0="a1 a1! a2! a2! a2 a3")
    assert orders.count(attempt) == NumberFacts(series=1)
    assert orders.name(attempt) == ([], [])


def test_records_without_key_or_number_are_counted_apart(orders: Numbered) -> None:
    assert orders.take(p0="a1 a - -7 a2") == NumberFacts(series=1, unnumbered=3)


def test_restart_without_a_start_is_told_as_a_repetition(orders: Numbered) -> None:
    orders.take(p0="a1 a2")
    assert orders.take(p0="a1 a2 a3") == NumberFacts(series=1, repeated=2)


def test_restart_begins_the_numbering_anew(restarting: Numbered) -> None:
    restarting.take(p0="a1 a2 a3")
    assert restarting.take(p0="a4 a1 a2") == NumberFacts(series=1, restarts=1)
    assert restarting.warehouse.read_series() == {'["a"]': (2, [1, 2])}
    assert restarting.take(p0="a3") == NumberFacts(series=1)


def test_gap_before_and_after_a_restart_are_both_told(restarting: Numbered) -> None:
    restarting.take(p0="a1 a2")
    attempt = restarting.stage(p0="a4 a1 a3 b1 b1 b2")
    assert restarting.count(attempt) == NumberFacts(series=2, missing=2, gaps=2, restarts=2)
    missing = ["orders[0]@2 (3 missing before 4)", "orders[0]@4 (2 missing before 3)"]
    assert restarting.name(attempt) == (missing, [])


def test_series_that_does_not_begin_at_its_start_is_told_and_no_failure(restarting: Numbered) -> None:
    assert restarting.take(p0="a5 b1") == NumberFacts(series=2, joined=1)
    assert restarting.take(p0="a6 b2") == NumberFacts(series=2)


def test_i6_counting_numbers_changes_nothing(orders: Numbered) -> None:
    attempt = orders.stage(p0="a1 a3")
    for _ in range(2):
        assert orders.count(attempt).missing == 1
        orders.name(attempt)
    assert orders.warehouse.read_series() == {}


def fail_after_everything(warehouse: Warehouse, publication: Publication) -> None:
    life.apply(warehouse, publication)
    raise BatchBlockedError("a fault after everything", batch_id=1)


@pytest.mark.lake
def test_i3_publication_that_fails_remembers_no_number(orders: Numbered) -> None:
    attempt = orders.stage(p0="a1")
    life.audit(orders.warehouse, attempt)
    with pytest.raises(BatchBlockedError), orders.warehouse.ledger.publication(attempt) as publication:
        fail_after_everything(orders.warehouse, publication)
    assert orders.warehouse.read_series() == {}
    life.publish(orders.warehouse, attempt)
    assert orders.warehouse.read_series() == {'["a"]': (1, [1])}


@pytest.mark.lake
def test_replay_neither_judges_nor_changes_numbers(orders: Numbered) -> None:
    orders.take(p0="a1 a2")
    before = orders.warehouse.read_series()
    everything = OffsetRange(ORDERS_0, 0, 2)
    again = life.store_replay(orders.warehouse, everything)
    rows = pa.RecordBatch.from_pylist(
        [
            {"_topic": "orders", "_partition": 0, "_offset": at, "_timestamp": life.NOW, "device": "a", "seq": 9 + at}
            for at in (0, 1)
        ],
        schema=SCHEMA,
    )
    attempt = life.stage(orders.warehouse, again, "again", rows=rows)
    life.audit(orders.warehouse, attempt)
    life.publish(orders.warehouse, attempt)
    assert orders.warehouse.read_series() == before


def test_rewind_forgets_the_numbering(orders: Numbered) -> None:
    orders.take(p0="a1 a2 a3")
    orders.warehouse.decisions.rewind(orders.warehouse.pipeline, ResolvedRewind(0, {ORDERS_0: 1}), ANA)
    assert orders.warehouse.read_series() == {}
    assert orders.take(p0="a2 a3") == NumberFacts(series=1)


@pytest.mark.lake
def test_numbers_of_dropped_duplicates_do_not_count(warehouse: Warehouse) -> None:
    """A producer that sends a batch twice does not repeat its numbers when ``dedupe`` drops the second one."""
    rules = Deduplication(("message_id",), timedelta(days=30))
    orders = Numbered(warehouse.with_rules(rules, sequence=BY_DEVICE))
    assert orders.take(p0="a1 a2 a1") == NumberFacts(series=1)
    attempt = orders.stage(p0="a2 a3 a3 a5")
    assert orders.count(attempt) == NumberFacts(series=1, missing=1, gaps=1)
    assert orders.name(attempt) == (["orders[0]@6 (4 missing before 5)"], [])
    life.audit(orders.warehouse, attempt)
    life.publish(orders.warehouse, attempt)
    assert orders.warehouse.read_series() == {'["a"]': (1, [1, 2, 3, 5])}


def test_control_without_dedupe_the_same_records_repeat_their_numbers(orders: Numbered) -> None:
    assert orders.take(p0="a1 a2 a1").repeated == 1


def test_numbers_are_not_remembered_from_a_staging_that_was_lost(orders: Numbered) -> None:
    """At least once: the rows were committed before, and the database has emptied its unlogged tables since."""
    attempt = orders.stage(p0="a1 a2")
    life.audit(orders.warehouse, attempt)
    with orders.warehouse.ledger.publication(attempt) as publication:
        publish_rows(orders.warehouse.sink, publication, publication.load())
        publication.mark_rows()
    orders.warehouse.lose_staging()
    with pytest.raises(StagingLostError), orders.warehouse.ledger.publication(attempt) as publication:
        remember_numbers(orders.warehouse.sink, publication.load())


def test_pipelines_and_rules_do_not_share_numbers(warehouse: Warehouse) -> None:
    orders = Numbered(warehouse.with_rules(sequence=BY_DEVICE))
    orders.take(p0="a1 a2")
    other = replace(BY_DEVICE, key=("device", "message_id"))
    assert Numbered(orders.warehouse.with_rules(sequence=other), runs=1).take(p0="a1").repeated == 0


def test_sink_without_a_sequence_judges_no_numbers(warehouse: Warehouse) -> None:
    attempt = Numbered(warehouse).stage(p0="a1 a3")
    assert life.count_numbers(warehouse, attempt) is None


@pytest.mark.lake
@pytest.mark.parametrize(("column", "message"), [("sqe", "sqe"), ("message_id", "message_id")])
def test_number_column_that_is_missing_or_no_integer_is_refused_before_anything_is_written(
    warehouse: Warehouse, column: str, message: str
) -> None:
    wrong = warehouse.with_rules(sequence=SequenceRule(("device",), column))
    with pytest.raises(ConfigurationError, match=message):
        Numbered(wrong).stage(p0="a1")


@dataclass
class Told:
    """What the numbers of one device say, one record after the other."""

    starts_at: int | None
    run: int = 0
    before: set[int] = field(default_factory=set)
    seen: set[int] = field(default_factory=set)
    kept: set[int] = field(default_factory=set)
    counted: Counter[str] = field(default_factory=Counter)

    def take(self, number: int, *, is_kept: bool) -> None:
        """A record that was set aside has arrived, and repeats nothing."""
        if self.run == 0 or (number == self.starts_at and self.seen):
            self.counted["joined"] += self.run == 0 and self.starts_at not in (None, number)
            self.counted["restarts"] += self.run > 0
            self.end()
            self.run, self.before, self.seen, self.kept = self.run + 1, set(), set(), set()
        self.counted["repeated"] += is_kept and number in self.before | self.kept
        self.counted["late"] += number not in self.seen and bool(self.before) and number < max(self.before)
        self.seen.add(number)
        self.kept |= {number} if is_kept else set()

    def end(self) -> None:
        """Count the numbers that are missing now and were not missing before this batch."""
        self.counted["missing"] += len(_missing(self.seen) - _missing(self.before))
        self.before, self.kept = set(self.seen), set()


def _missing(seen: set[int]) -> set[int]:
    return set(range(min(seen), max(seen))) - seen if seen else set()


@pytest.mark.parametrize("rules", [BY_DEVICE, FROM_ONE])
def test_random_numbers_are_judged_as_one_would_judge_them_record_by_record(
    warehouse_dsn: str, rules: SequenceRule
) -> None:
    """Gaps, repetitions, late numbers and restarts in any mixture, batch after batch."""
    dice = random.Random(7)  # noqa: S311 -- the same mixture in every run
    warehouse = PostgresWarehouse(warehouse_dsn).with_rules(sequence=rules)
    orders, told = Numbered(warehouse), defaultdict[str, Told](lambda: Told(rules.starts_at))
    try:
        for _ in range(12):
            records = {
                name: " ".join(
                    f"{dice.choice('ab')}{dice.randint(1, 14)}{dice.choice(['', '', '!'])}"
                    for _ in range(dice.randint(1, 9))
                )
                for name in sorted(dice.sample(["p0", "p1"], dice.randint(1, 2)))
            }
            words = " ".join(records.values()).split()
            for each in words:
                told[each[0]].take(int(each[1:].rstrip("!")), is_kept="!" not in each)
            counted = Counter[str]()
            for each in {word[0] for word in words}:
                told[each].end()
                counted += told[each].counted
                told[each].counted.clear()
            found = orders.take(**records)
            assert {name: getattr(found, name) for name in NUMBERED} == {name: counted[name] for name in NUMBERED}
            assert warehouse.read_series() == {f'["{each}"]': (by.run, sorted(by.seen)) for each, by in told.items()}
    finally:
        warehouse.drop()
