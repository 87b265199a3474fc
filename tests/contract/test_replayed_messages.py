"""The contract of ``dedupe`` under replays: what was decided about a record stays decided (I8)."""

import random
from collections.abc import Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import pytest

from batchledger.lifecycle.requirement import publish_rows
from batchledger.model.batch import Batch
from batchledger.model.errors import AuditOutdatedError
from batchledger.model.offsets import OffsetRange, TopicPartition
from batchledger.ports import RowsToPublish
from batchledger.sinks.staging.deduplication import PostgresDeduplication
from tests.contract import life
from tests.contract.conftest import EVERY_TABLE
from tests.contract.messages import BY_ID, MONTH, Messages
from tests.contract.warehouses import Warehouse, open_postgres

WAREHOUSES = EVERY_TABLE
pytestmark = pytest.mark.rules

P0, P1 = TopicPartition("orders", 0), TopicPartition("orders", 1)
AFTER_A_MONTH = MONTH.days


@pytest.fixture
def topic(warehouse: Warehouse) -> Messages:
    """A pipeline that drops duplicates of ``message_id`` and remembers ids for a month."""
    return Messages(warehouse.with_rules(BY_ID))


def p0(start: int, until: int) -> OffsetRange:
    return OffsetRange(P0, start, until)


def test_i8_replay_changes_nothing_but_the_batch_of_the_rows_however_often_it_runs(topic: Messages) -> None:
    topic.live(p0="aabc-", p1="cd")
    topic.live(p0="be-", p1="ef")
    before = topic.state()
    for _ in range(2):
        last = topic.replay(p0(1, 7), OffsetRange(P1, 0, 3))
        assert topic.state() == before
    owners = {row["_batch_id"] for row in topic.warehouse.read_target() if row["_partition"] == 1}
    assert last.batch.batch_id in owners


def test_accepted_record_stays_when_its_id_was_forgotten_and_accepted_elsewhere(topic: Messages) -> None:
    topic.live(p0="ab")
    topic.live(AFTER_A_MONTH, p0="a")
    before = topic.state()
    for ranges in ([p0(0, 2)], [p0(2, 3)], [p0(0, 3)]):
        topic.replay(*ranges, day=AFTER_A_MONTH + 1)
        assert topic.state() == before


def test_duplicate_stays_one_of_the_same_record_when_its_id_was_forgotten(topic: Messages) -> None:
    topic.live(p0="aa")
    topic.live(p0="a")
    topic.live(2 * AFTER_A_MONTH, p0="b")
    before = topic.state()
    for ranges in ([p0(1, 2)], [p0(2, 3)], [p0(0, 3)], [p0(1, 3)]):
        topic.replay(*ranges, day=2 * AFTER_A_MONTH)
        assert topic.state() == before


def test_id_is_remembered_for_as_long_as_without_the_replay(topic: Messages) -> None:
    topic.live(p0="a")
    topic.replay(p0(0, 1), day=AFTER_A_MONTH - 1)
    topic.live(AFTER_A_MONTH - 1, p0="a")
    topic.live(AFTER_A_MONTH, p0="a")
    assert list(topic.visible()) == [(P0, 0), (P0, 2)]


def test_replay_does_not_remember_a_forgotten_id_again(topic: Messages) -> None:
    topic.live(p0="a")
    topic.live(AFTER_A_MONTH, p0="b")
    topic.replay(p0(0, 1), day=AFTER_A_MONTH)
    topic.live(AFTER_A_MONTH + 1, p0="a")
    assert topic.ids() == "aba"


def test_replay_forgets_no_id_of_a_live_batch_that_was_planned_before_it(topic: Messages) -> None:
    topic.live(p0="ab")
    planned_before = topic.stage_live(AFTER_A_MONTH - 1, p0="a")
    topic.replay(p0(1, 2), day=AFTER_A_MONTH + 1)
    topic.publish(planned_before)
    assert topic.ids() == "ab"


def test_record_that_decodes_now_is_judged_by_its_id(topic: Messages) -> None:
    topic.poison = {(P0, 1), (P0, 2)}
    topic.live(p0="abac")
    topic.live(p0="b")
    topic.poison = set()
    topic.replay(p0(0, 4))
    assert topic.ids() == "acb"
    assert topic.duplicates() == [((P0, 1), (P0, 4)), ((P0, 2), (P0, 0))]


def test_id_of_a_record_that_decodes_now_is_remembered(topic: Messages) -> None:
    topic.poison = {(P0, 1)}
    topic.live(p0="ab")
    topic.poison = set()
    topic.replay(p0(0, 2))
    topic.live(p0="b")
    assert list(topic.visible()) == [(P0, 0), (P0, 1)]


def test_record_that_decodes_now_does_not_take_the_place_of_an_accepted_one(topic: Messages) -> None:
    """Its id is forgotten, and its offset is the lower one."""
    topic.poison = {(P0, 0)}
    topic.live(p0="aa")
    topic.live(AFTER_A_MONTH, p0="b")
    topic.poison = set()
    topic.replay(p0(0, 2), day=AFTER_A_MONTH)
    assert list(topic.visible()) == [(P0, 1), (P0, 2)]
    assert topic.duplicates() == [((P0, 0), (P0, 1))]


def test_id_whose_record_is_gone_is_free_again(topic: Messages) -> None:
    topic.live(p0="ab")
    topic.poison = {(P0, 0)}
    topic.replay(p0(0, 1))
    topic.live(p0="ab")
    assert list(topic.visible()) == [(P0, 1), (P0, 2)]


def test_id_that_a_new_transform_changes_is_free_and_the_new_one_is_taken(topic: Messages) -> None:
    topic.live(p0="ab")
    topic.replay(p0(0, 2), ids={(P0, 0): "c"})
    assert topic.ids() == "cb"
    topic.live(p0="ac")
    assert topic.ids() == "cba"


def test_record_with_a_new_id_that_is_known_elsewhere_becomes_a_duplicate(topic: Messages) -> None:
    topic.live(p0="ab")
    topic.live(p0="c")
    topic.replay(p0(0, 2), ids={(P0, 0): "c"})
    assert topic.ids() == "bc"
    assert topic.duplicates() == [((P0, 0), (P0, 2))]


def test_duplicate_with_a_new_id_becomes_a_row(topic: Messages) -> None:
    topic.live(p0="aa")
    topic.replay(p0(1, 2), ids={(P0, 1): "c"})
    assert topic.ids() == "ac"
    assert topic.duplicates() == []


@pytest.mark.parametrize("day", [0, 2 * AFTER_A_MONTH], ids=["remembered", "forgotten"])
def test_duplicate_of_a_record_that_is_gone_becomes_a_row_when_it_is_read_again(topic: Messages, day: int) -> None:
    topic.live(p0="aa")
    topic.live(p0="a")
    topic.live(day, p0="b")
    topic.poison = {(P0, 0)}
    topic.replay(p0(0, 1), day=day)
    assert topic.ids() == "b"
    topic.replay(p0(1, 2), day=day)
    assert list(topic.visible()) == [(P0, 1), (P0, 3)]
    topic.replay(p0(1, 4), day=day)
    assert list(topic.visible()) == [(P0, 1), (P0, 3)]
    assert topic.duplicates() == [((P0, 2), (P0, 1))]


def test_next_record_takes_the_place_of_one_that_is_gone_in_the_same_replay(topic: Messages) -> None:
    topic.live(p0="aab")
    topic.live(p0="a")
    topic.poison = {(P0, 0)}
    topic.replay(p0(0, 4))
    assert list(topic.visible()) == [(P0, 1), (P0, 2)]
    assert topic.duplicates() == [((P0, 3), (P0, 1))]


def test_live_batch_behind_a_replay_that_read_ahead_decides_as_it_did(topic: Messages) -> None:
    topic.live(p0="ab")
    topic.log[P0] += "abcc"
    topic.replay(p0(1, 6))
    duplicates = topic.duplicates()
    topic.live(2 * AFTER_A_MONTH, p0="d")
    assert list(topic.visible()) == [(P0, 0), (P0, 1), (P0, 4), (P0, 6)]
    assert topic.duplicates() == duplicates


def test_records_without_an_id_are_replaced_and_never_duplicates(topic: Messages) -> None:
    topic.live(p0="-a--")
    for _ in range(2):
        topic.replay(p0(0, 4))
        assert topic.ids() == "-a--"
    topic.replay(p0(0, 4), ids={(P0, 0): "b", (P0, 1): "-"})
    assert topic.ids() == "b---"
    topic.live(p0="ab")
    assert topic.ids() == "b---a"


def test_ids_of_other_pipelines_are_left_alone(topic: Messages) -> None:
    topic.live(p0="a")
    other = f"{topic.warehouse.pipeline}_other"
    topic.warehouse.remember_key("a", (P0, 0), life.NOW + MONTH, pipeline=other)
    topic.poison = {(P0, 0)}
    topic.replay(p0(0, 1))
    assert list(topic.warehouse.read_message_keys()) == []
    topic.warehouse.pipeline = other
    assert list(topic.warehouse.read_message_keys()) == [((P0, 0), life.NOW + MONTH)]


def test_i6_counting_the_duplicates_of_a_replay_changes_nothing(topic: Messages) -> None:
    topic.live(p0="aab")
    before = topic.state()
    replay = topic.stage_replay(p0(0, 3), ids={(P0, 0): "b"})
    for _ in range(2):
        assert [each.duplicates for each in life.summarise(topic.warehouse, replay)] == [1]
    assert topic.state() == before


def test_replay_whose_verdicts_another_one_has_changed_is_refused(topic: Messages) -> None:
    topic.live(p0="a")
    topic.live(p0="a")
    audited = topic.stage_replay(p0(1, 2))
    topic.poison = {(P0, 0)}
    topic.replay(p0(0, 1))
    before = topic.state()
    with pytest.raises(AuditOutdatedError, match="duplicates"):
        topic.publish(audited)
    assert topic.state() == before


@pytest.mark.parametrize("taken", [p0(1, 5), p0(3, 5)], ids=["all", "a part"])
def test_rows_between_two_commits_that_a_replay_took_over_are_written_again(
    topic: Messages, taken: OffsetRange
) -> None:
    """At least once: the keys say of the rest that it is there already, and of what was replaced that it is not."""
    topic.live(p0="x")
    topic.log[P0] += "abac"
    batch = life.store(topic.warehouse, p0(1, 5))
    with topic.warehouse.ledger.publication(topic.stage(batch, 0)) as publication:
        publish_rows(topic.warehouse.sink, publication, publication.load())
        publication.mark_rows()
    life.publish(topic.warehouse, topic.stage_replay(taken))
    topic.publish(topic.stage(batch, 0))
    assert topic.ids() == "xabc"
    assert {row["_batch_id"] for row in topic.warehouse.read_target() if row["_offset"]} == {batch.batch_id}


@dataclass(frozen=True)
class Step:
    """A live batch of these ids after some days, then replays of what lies between two parts of each log."""

    days: int
    p0: str
    p1: str
    replays: Sequence[tuple[int, int, int, int]]


def follow(topic: Messages, alone: Messages, steps: Sequence[Step]) -> None:
    """After every replay everything is as in the other pipeline, which sees the live batches alone."""
    day = 0
    for step in steps:
        day += step.days
        for each in (topic, alone):
            each.live(day, p0=step.p0, p1=step.p1)
        assert topic.state() == alone.state()
        for one, other, third, fourth in step.replays:
            ranges = [
                OffsetRange(partition, min(bounds), max(bounds))
                for partition, parts in ((P0, (one, other)), (P1, (third, fourth)))
                if len(set(bounds := [min(part, len(topic.log[partition])) for part in parts])) == 2
            ]
            if ranges:
                topic.replay(*ranges, day=day)
                assert topic.state() == alone.state()


@pytest.mark.parametrize("seed", range(3))
def test_any_history_with_replays_is_as_without_them(warehouse_dsn: str, seed: int) -> None:
    chance = random.Random(seed)  # noqa: S311
    steps = [
        Step(
            chance.randrange(25),
            "".join(chance.choices("abcd-", k=chance.randint(1, 6))),
            "".join(chance.choices("abcd-", k=chance.randint(1, 6))),
            [tuple(chance.choices(range(13), k=4)) for _ in range(2)],  # type: ignore[misc]
        )
        for _ in range(4)
    ]
    opened = contextmanager(open_postgres)
    with opened(warehouse_dsn) as one, opened(warehouse_dsn) as other:
        follow(Messages(one.with_rules(BY_ID)), Messages(other.with_rules(BY_ID)), steps)


def test_negative_control_by_its_ids_alone_a_late_replay_does_change_the_rows(
    topic: Messages, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Batch, "takes_over", lambda *_: False)
    monkeypatch.setattr(RowsToPublish, "takes_over", True)
    accept = PostgresDeduplication.accept
    monkeypatch.setattr(
        PostgresDeduplication, "accept", lambda keys, cursor, rows: accept(keys, cursor, replace(rows, handed=None))
    )
    topic.live(p0="aa")
    topic.live(2 * AFTER_A_MONTH, p0="b")
    topic.replay(p0(1, 2), day=2 * AFTER_A_MONTH)
    assert topic.ids() == "aab"
