"""What a user asks for in a form: shown without changing anything, carried out as it was shown, refused by its field.

The pipeline is the one in memory; the routes around it, and the same over real services, are tested elsewhere.
"""

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import pytest
from airflow.sdk.definitions.param import ParamsDict

from batchledger.interfaces.airflow.triggers import make_form
from batchledger.interfaces.page.forms import read_batch, read_order, write_run
from batchledger.interfaces.trigger_form import RunFacts, read_request
from batchledger.lifecycle import plans, run_batch
from batchledger.lifecycle.decisions import pause
from batchledger.lifecycle.execution import carry_out, explain
from batchledger.lifecycle.orders import Accept, AtOnce, Discard, Request, Retake
from batchledger.model.batch import BatchState, Decided, Decision, DecisionKind
from batchledger.model.errors import BatchBlockedError, ConfigurationError, DecisionRefusedError, ReplayRefusedError
from batchledger.model.offsets import OffsetRange
from batchledger.planning.replay import Quarantined, Replay, Window
from tests.fakes.world import ORDERS_0, ORDERS_1, PIPELINE, World, catch_up, staged_twice

BY_ANA = Decision("ana", "the schema was wrong")
TOPICS = ("orders",)
RUN = RunFacts("manual__1", created_by="ana")


def read_world() -> World:
    """Two partitions; ten records of each are published, of which two are in quarantine, and five more have come."""
    world = World()
    world.broker.create_topic("orders", 2)
    for partition in (ORDERS_0, ORDERS_1):
        world.produce(partition, 9)
        world.broker.append(partition, b"{")
    catch_up(world)
    for partition in (ORDERS_0, ORDERS_1):
        world.produce(partition, 5)
    return world


def expired_world() -> World:
    """Kafka has removed two unread records."""
    world = read_world()
    world.broker.expire(ORDERS_0, before=12)
    return world


def blocked_world() -> World:
    """A row of batch 2 is missing, and the reason is unknown."""
    world = read_world()
    with pytest.raises(BatchBlockedError):
        run_batch.run_once(world.process(alter=lambda rows: rows[1:]), "second")
    return world


def staged_world() -> World:
    """Batch 2 is staged; then the first record of it expires."""
    world = read_world()
    batch = plans.plan(world.process(), "second")
    assert batch is not None
    run_batch.stage(world.process(), batch.batch_id, "second")
    world.broker.expire(ORDERS_0, before=11)
    return world


def paused_world() -> World:
    world = read_world()
    pause(world.process(), BY_ANA)
    return world


def next_offsets(world: World) -> list[int]:
    return [each.next_offset for each in world.process().ledger.load_positions(PIPELINE)]


def state_of(world: World, batch_id: int = 2) -> BatchState:
    return world.process().ledger.load_batch(batch_id).state


def quarantined(world: World) -> list[str]:
    return [str(each.range) for each in world.process().ledger.find_quarantined(PIPELINE, None)]


@dataclass(frozen=True)
class Case:
    """What is asked for in a world, and what is to be seen there when it was carried out."""

    make_world: Callable[[], World]
    kind: DecisionKind
    fields: Mapping[str, str]
    look: Callable[[World], Any]
    before: Any
    after: Any


CASES = {
    "pause": Case(read_world, DecisionKind.PAUSE, {}, lambda world: bool(find_pause(world)), False, True),
    "resume": Case(paused_world, DecisionKind.RESUME, {}, lambda world: bool(find_pause(world)), True, False),
    "accept": Case(
        blocked_world, DecisionKind.ACCEPT, {"batch": "2"}, state_of, BatchState.BLOCKED, BatchState.PUBLISHED
    ),
    "discard": Case(
        blocked_world, DecisionKind.DISCARD, {"batch": " 2 "}, state_of, BatchState.BLOCKED, BatchState.DISCARDED
    ),
    "accept a loss": Case(
        expired_world, DecisionKind.ACCEPT_LOSS, {"ranges": "orders[0] 10..12"}, next_offsets, [10, 10], [12, 10]
    ),
    "accept a loss of what a batch has staged": Case(
        staged_world,
        DecisionKind.ACCEPT_LOSS,
        {"ranges": "orders[0] 10..11", "discard_batch": "2"},
        lambda world: (next_offsets(world), state_of(world)),
        ([10, 10], BatchState.STAGED),
        ([11, 10], BatchState.DISCARDED),
    ),
    "skip": Case(
        read_world,
        DecisionKind.SKIP,
        {"ranges": " orders[0] 10..12 \r\n\r\norders[1] 10..11\r\n", "discard_batch": " "},
        next_offsets,
        [10, 10],
        [12, 11],
    ),
    "rewind to the earliest offset": Case(
        read_world, DecisionKind.REWIND, {"to": "earliest"}, next_offsets, [10, 10], [0, 0]
    ),
    "rewind to offsets": Case(
        read_world, DecisionKind.REWIND, {"to": "orders[1]@4\norders[0]@7"}, next_offsets, [10, 10], [7, 4]
    ),
    "rewind to a moment": Case(
        read_world, DecisionKind.REWIND, {"to": "2026-01-01T01:00+01:00"}, next_offsets, [10, 10], [0, 0]
    ),
    "rewind and empty the table": Case(
        read_world,
        DecisionKind.REWIND,
        {"to": "earliest", "truncate": "yes"},
        lambda world: len(world.times_published()),
        18,
        0,
    ),
    "rewind and give up what has expired": Case(
        expired_world,
        DecisionKind.REWIND,
        {"to": "earliest", "truncate": "yes", "allow_expired": "yes"},
        lambda world: len(world.times_published()),
        18,
        0,
    ),
    "drop from quarantine": Case(
        read_world,
        DecisionKind.QUARANTINE_DROP,
        {"ranges": "orders[0] 0..10"},
        quarantined,
        ["orders[0] 9..10", "orders[1] 9..10"],
        ["orders[1] 9..10"],
    ),
}


def find_pause(world: World) -> object:
    return world.process().decisions.find_pause(PIPELINE)


def at_once(kind: DecisionKind, fields: Mapping[str, str]) -> AtOnce:
    order = read_order(kind, fields)
    assert not isinstance(order, Replay | Retake)
    assert order.kind is kind
    return order


def shown(decided: Decided) -> tuple[object, ...]:
    record = decided.record
    assert record is not None
    return (decided.is_new, record.kind, record.decided_by, record.reason, record.before, record.after)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_what_is_asked_for_is_shown_without_changing_anything_and_carried_out_as_it_was_shown(case: Case) -> None:
    world = case.make_world()
    assert case.look(world) == case.before
    tables = copy.deepcopy(world.database.committed)
    order = at_once(case.kind, case.fields)
    rehearsed = explain(world.process(), order, BY_ANA)
    assert world.database.committed == tables
    kept = carry_out(world.process(), order, BY_ANA)
    assert case.look(world) == case.after
    assert shown(kept) == shown(rehearsed)
    recorded = world.database.committed.decisions.values()
    assert (case.kind, "ana", BY_ANA.reason) in [(each.kind, each.decided_by, each.reason) for each in recorded]


def test_every_decision_that_no_run_carries_out_is_among_the_cases() -> None:
    # Adopting a target takes as long as its proof, which reads all of it, and erasing reads the table: longer than a
    # page may. So does taking rows over. A pipeline is retired when its file, and with it its page, is gone. A rename
    # changes the file's name.
    elsewhere = {
        DecisionKind.TRIGGER, DecisionKind.DRY_RUN, DecisionKind.ADOPT_TARGET, DecisionKind.ADOPT_ROWS,
        DecisionKind.ERASE, DecisionKind.RETIRE, DecisionKind.RENAME,
    }  # fmt: skip
    by_run = {DecisionKind.REPLAY, DecisionKind.QUARANTINE_REPLAY, DecisionKind.RETRY}
    about_requests = {DecisionKind.REQUEST, DecisionKind.WITHDRAW}
    assert {case.kind for case in CASES.values()} == set(DecisionKind) - elsewhere - by_run - about_requests


def test_batch_to_be_taken_again_is_shown_without_changing_anything() -> None:
    world = blocked_world()
    tables = copy.deepcopy(world.database.committed)
    decided = explain(world.process(), Retake(2), BY_ANA)
    assert decided.record is not None
    assert decided.record.before == {"state": "blocked", "attempt": 1, "run": "second"}
    assert decided.record.after == {"state": "planned", "attempt": 2, "run": "a run of its own"}
    assert world.database.committed == tables


MOVES = ", and the position moves past 10 offsets."


@pytest.mark.parametrize(
    ("make_world", "order", "said"),
    [
        (
            blocked_world,
            Accept(2),
            f"8 rows become visible in orders{MOVES} Checks that have failed: balance_closes.",
        ),
        (blocked_world, Discard(2), "Nothing of it becomes visible; the next run plans its 10 offsets again."),
        (blocked_world, Retake(2), "A run reads its 10 offsets again, and publishes them if no check fails."),
    ],
    ids=["accept", "discard", "retake"],
)
def test_what_an_order_comes_to_is_said_in_a_sentence(
    make_world: Callable[[], World], order: Accept | Discard | Retake, said: str
) -> None:
    assert explain(make_world().process(), order, BY_ANA).means == (said,)


def test_dry_run_is_not_shown_to_be_taken_again_because_no_run_would() -> None:
    world = read_world()
    platform = world.process()
    planned = plans.preview_replay(platform, Replay((OffsetRange(ORDERS_0, 0, 5),)))
    batch = plans.store_replay(platform, replace(planned, is_dry_run=True), "look", BY_ANA, None)
    with pytest.raises(ReplayRefusedError):
        explain(world.process(), Retake(batch.batch_id), BY_ANA)


def test_rehearsal_refuses_what_could_not_be_carried_out() -> None:
    world = blocked_world()
    asked = at_once(DecisionKind.SKIP, {"ranges": "orders[0] 11..12"})
    with pytest.raises(DecisionRefusedError, match="Begin a skip at the stored position"):
        explain(world.process(), asked, BY_ANA)
    wrong = read_world()
    with pytest.raises(BatchBlockedError):
        run_batch.run_once(wrong.process(alter=staged_twice), "second")
    with pytest.raises(DecisionRefusedError, match="cannot be accepted"):
        explain(wrong.process(), Accept(2), BY_ANA)


def test_dropping_what_is_not_in_quarantine_changes_nothing_and_says_so() -> None:
    world = read_world()
    drop = at_once(DecisionKind.QUARANTINE_DROP, {"ranges": "orders[0] 0..9"})
    assert carry_out(world.process(), drop, BY_ANA) == Decided(None, is_new=False)
    assert len(quarantined(world)) == 2


def test_dropping_names_exactly_the_records_that_leave_quarantine() -> None:
    world = read_world()
    drop = at_once(DecisionKind.QUARANTINE_DROP, {"ranges": "orders[0] 0..10\norders[0] 5..10"})
    decided = carry_out(world.process(), drop, BY_ANA)
    assert decided.record is not None
    assert decided.record.before == {"quarantined": {"orders[0] 9..10": 1}}
    assert decided.record.after == {"quarantined": {"orders[0] 9..10": 0}}


@pytest.mark.parametrize(
    ("kind", "fields", "field", "told"),
    [
        (DecisionKind.ACCEPT, {}, "batch", "batch: '' is not the number of a batch"),
        (DecisionKind.ACCEPT, {"batch": "-1"}, "batch", "'-1' is not"),
        (DecisionKind.DISCARD, {"batch": "1.5"}, "batch", "'1.5' is not"),
        (DecisionKind.DISCARD, {"batch": "\N{ARABIC-INDIC DIGIT THREE}"}, "batch", "is not the number"),
        (DecisionKind.RETRY, {"batch": "9" * 19}, "batch", "is not the number"),
        (DecisionKind.ACCEPT_LOSS, {}, "ranges", "Name at least one"),
        (DecisionKind.ACCEPT_LOSS, {"ranges": "orders 1..2"}, "ranges", "'orders 1..2' is not an offset range"),
        (DecisionKind.SKIP, {"ranges": "orders[0] 5..4"}, "ranges", "is not a range"),
        (DecisionKind.SKIP, {"ranges": "orders[0] 1..2, orders[1] 1..2"}, "ranges", "is not an offset range"),
        (DecisionKind.SKIP, {"ranges": "orders[0] 1..2", "discard_batch": "x"}, "discard_batch", "'x' is not"),
        (DecisionKind.QUARANTINE_DROP, {"ranges": " \n "}, "ranges", "Name at least one"),
        (
            DecisionKind.QUARANTINE_DROP,
            {"ranges": f"orders[0] 0..{2**63}"},
            "ranges",
            "Kafka has no partition",
        ),
        (
            DecisionKind.QUARANTINE_DROP,
            {"ranges": f"orders[{2**31}] 0..1"},
            "ranges",
            "Kafka has no partition",
        ),
        (DecisionKind.REWIND, {}, "to", "earliest, one moment, or once for each partition"),
        (DecisionKind.REWIND, {"to": "yesterday"}, "to", "'yesterday' is neither a moment"),
        (DecisionKind.REWIND, {"to": "orders[0]@1\norders[0]@2"}, "to", "once for each partition"),
        (DecisionKind.REWIND, {"to": "orders[0]@1\nearliest"}, "to", "once for each partition"),
        (DecisionKind.TRIGGER, {}, "kind", "trigger is no order of this page"),
    ],
)
def test_decision_is_refused_by_the_name_of_its_field(
    kind: DecisionKind, fields: Mapping[str, str], field: str, told: str
) -> None:
    with pytest.raises(ConfigurationError) as refused:
        read_order(kind, fields)
    assert refused.value.subject == field
    assert told in str(refused.value)


@pytest.mark.parametrize("text", ["1", " 17 ", "9" * 18])
def test_number_of_a_batch_is_read(text: str) -> None:
    assert read_batch({"batch": text}) == int(text)


WINDOW = {"since": "2026-11-20", "until": "2026-11-21T01:00+01:00"}
DAY = Window(datetime(2026, 11, 20, tzinfo=UTC), datetime(2026, 11, 21, tzinfo=UTC))
FIVE, TWO = OffsetRange(ORDERS_0, 0, 5), OffsetRange(ORDERS_1, 3, 5)
LINES = {"ranges": "orders[0] 0..5\r\n orders[1] 3..5\r\n"}


@pytest.mark.parametrize(
    ("kind", "fields", "order"),
    [
        pytest.param(DecisionKind.REPLAY, WINDOW, Replay(DAY), id="a window"),
        pytest.param(
            DecisionKind.REPLAY,
            {**WINDOW, "allow_expired": "yes", "ranges": " "},
            Replay(DAY, allow_expired=True),
            id="what is left of a window",
        ),
        pytest.param(DecisionKind.REPLAY, LINES, Replay((FIVE, TWO)), id="named ranges"),
        pytest.param(
            DecisionKind.REPLAY,
            {**LINES, "since": "", "until": "", "allow_expired": "yes"},
            Replay((FIVE, TWO), allow_expired=True),
            id="what is left of named ranges",
        ),
        pytest.param(
            DecisionKind.QUARANTINE_REPLAY,
            LINES,
            Replay(Quarantined((FIVE, TWO))),
            id="quarantine",
        ),
        pytest.param(DecisionKind.RETRY, {"batch": "17"}, Retake(17), id="a batch"),
    ],
)
def test_run_is_asked_for_what_the_fields_say(
    kind: DecisionKind, fields: Mapping[str, str], order: Replay | Retake
) -> None:
    assert read_order(kind, fields) == order
    run = write_run(order, BY_ANA.reason, TOPICS)
    key = RUN.request if isinstance(order, Replay) else ""
    assert read_request(validated(run), RUN, TOPICS) == Request(order, BY_ANA, key=key)
    if isinstance(order, Replay):
        dry = write_run(order, BY_ANA.reason, TOPICS, is_dry_run=True)
        assert read_request(validated(dry), RUN, TOPICS) == Request(order, BY_ANA, is_dry_run=True)
        assert dry == {**run, "dry_run": True}


def ask_for_run(kind: DecisionKind, fields: Mapping[str, str]) -> dict[str, Any]:
    order = read_order(kind, fields)
    assert isinstance(order, Replay | Retake)
    return write_run(order, fields.get("reason", BY_ANA.reason), TOPICS)


def validated(run: dict[str, Any]) -> dict[str, Any]:
    """What the first task is given, after Airflow has held it against the DAG's form; it travels as JSON."""
    assert all(type(each) is str for each in run)
    form = ParamsDict(make_form())
    form.update(run)
    return form.validate()


@pytest.mark.parametrize(
    ("kind", "fields", "field", "told"),
    [
        (DecisionKind.REPLAY, {}, "ranges", "Name what to publish again"),
        (DecisionKind.REPLAY, {**LINES, "since": "2026-11-20"}, "ranges", "not both"),
        (DecisionKind.REPLAY, {"since": "2026-11-20", "until": "soon"}, "until", "until: 'soon' is neither a moment"),
        (DecisionKind.REPLAY, {"since": "2026-11-21", "until": "2026-11-20"}, "until", "until: "),
        (DecisionKind.REPLAY, {"ranges": "orders[0] 1-2"}, "ranges", "'orders[0] 1-2' is not an offset range"),
        (DecisionKind.REPLAY, {"ranges": "payments[0] 1..2"}, "ranges", "does not read this topic"),
        (DecisionKind.REPLAY, {"ranges": "orders[0] 1..3\norders[0] 2..4"}, "ranges", "named more than once"),
        (DecisionKind.QUARANTINE_REPLAY, {}, "ranges", "Name at least one"),
        (DecisionKind.QUARANTINE_REPLAY, {"ranges": "orders[0] 2..2"}, "ranges", "holds no offset"),
        (DecisionKind.RETRY, {"batch": "seventeen"}, "batch", "'seventeen' is not the number of a batch"),
        (DecisionKind.REPLAY, {**LINES, "reason": " "}, "reason", "needs it"),
    ],
)
def test_run_is_refused_by_the_name_of_its_field(
    kind: DecisionKind, fields: Mapping[str, str], field: str, told: str
) -> None:
    with pytest.raises(ConfigurationError) as refused:
        ask_for_run(kind, fields)
    assert refused.value.subject == field
    assert told in str(refused.value)
