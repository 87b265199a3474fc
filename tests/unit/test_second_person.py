"""Orders that need two people: the first one's is a request, another person confirms exactly what was shown, once."""

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from batchledger.lifecycle import decisions, run_batch
from batchledger.lifecycle.execution import RepeatedKey, carry_out, confirm, explain, explain_confirmation, withdraw
from batchledger.lifecycle.orders import (
    Accept,
    AcceptLoss,
    AtOnce,
    Discard,
    DropQuarantined,
    Erase,
    Pause,
    Skip,
)
from batchledger.lifecycle.platform import Platform
from batchledger.lifecycle.written_orders import TwoPerson, needs_second_person, read_order, write_order
from batchledger.model.actors import Actor
from batchledger.model.batch import BatchState, Decided, Decision, DecisionRecord
from batchledger.model.erasure import ErasureKey
from batchledger.model.errors import BatchBlockedError, DecisionRefusedError
from batchledger.model.offsets import OffsetRange
from batchledger.model.requests import TwoPersonOrder, explain_same
from batchledger.planning.live import StartPolicy
from batchledger.planning.rewind import Rewind
from tests.fakes.crash import CrashOnce, SimulatedCrashError
from tests.fakes.decisions import MemoryDecisions
from tests.fakes.history import prove
from tests.fakes.world import ORDERS_0, ORDERS_1, PIPELINE, World, catch_up

BY_ANA, BY_BEN = Decision("ana", "ticket 812"), Decision("ben", "I have looked at it")
MOMENT = datetime(2026, 11, 21, 10, 30, tzinfo=UTC)
TRUNCATE = Rewind(StartPolicy.EARLIEST, truncate=True)
ERASE = Erase(ErasureKey.parse([f"message_id={ORDERS_0}@1"]))


def read_world(*, second_person: tuple[TwoPersonOrder, ...] = tuple(TwoPersonOrder)) -> World:
    """Two partitions; three records of each are published, two are in quarantine, and four have come since."""
    world = World(second_person=second_person)
    world.broker.create_topic("orders", 2)
    for partition in (ORDERS_0, ORDERS_1):
        world.produce(partition, 3)
        world.broker.append(partition, b"{")
    catch_up(world)
    for partition in (ORDERS_0, ORDERS_1):
        world.produce(partition, 2)
    return world


def blocked_world() -> World:
    """A row of batch 2 is missing, and the reason is unknown."""
    world = read_world()
    with pytest.raises(BatchBlockedError):
        run_batch.run_once(world.process(alter=lambda rows: rows[1:]), "second")
    return world


def expired_world() -> World:
    """Kafka has removed an unread record."""
    world = read_world()
    world.broker.expire(ORDERS_0, before=5)
    return world


def record_of(decided: Decided) -> DecisionRecord:
    assert decided.record is not None
    return decided.record


def ask(world: World, order: AtOnce) -> DecisionRecord:
    """Let ana ask; return the request."""
    request = record_of(carry_out(world.process(), order, BY_ANA))
    assert request.kind == "request"
    return request


def quarantined(world: World) -> int:
    return len(world.process().ledger.find_quarantined(PIPELINE, None))


def next_offsets(world: World) -> list[int]:
    return [each.next_offset for each in world.process().ledger.load_positions(PIPELINE)]


def state_of(world: World, batch_id: int = 2) -> BatchState:
    return world.process().ledger.load_batch(batch_id).state


@dataclass(frozen=True)
class Case:
    """An order in a world, what is to be seen before and after it, and what lets it change something else."""

    make_world: Callable[[], World]
    order: TwoPerson
    look: Callable[[World], Any]
    before: Any
    after: Any
    meddle: Callable[[World], object]


def take_again(world: World) -> None:
    with pytest.raises(BatchBlockedError):
        run_batch.run_once(world.process(alter=lambda rows: rows[1:]), "third", 2)


def drop_one(world: World) -> None:
    found = world.process().ledger.find_quarantined(PIPELINE, None)
    world.process().decisions.drop_quarantined(PIPELINE, [found[0].range], BY_BEN)


def accept_the_loss(world: World) -> None:
    decisions.accept_loss(world.process(), (OffsetRange(ORDERS_0, 4, 5),), BY_BEN)


CASES = {
    "accept": Case(blocked_world, Accept(2), state_of, BatchState.BLOCKED, BatchState.PUBLISHED, take_again),
    "accept-loss": Case(
        expired_world,
        AcceptLoss((OffsetRange(ORDERS_0, 4, 5),)),
        next_offsets,
        [4, 4],
        [5, 4],
        accept_the_loss,
    ),
    "skip": Case(read_world, Skip((OffsetRange(ORDERS_1, 4, 6),)), next_offsets, [4, 4], [4, 6], catch_up),
    "truncate": Case(read_world, TRUNCATE, lambda world: len(world.times_published()), 6, 0, catch_up),
    "quarantine-drop": Case(read_world, DropQuarantined(), quarantined, 2, 0, drop_one),
}


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest) -> Case:
    return CASES[request.param]


def test_order_of_one_person_is_kept_as_a_request_with_its_effect_and_changes_nothing(case: Case) -> None:
    world = case.make_world()
    request = ask(world, case.order)
    assert (case.look(world), request.decided_by, request.reason) == (case.before, "ana", "ticket 812")
    assert request.requested_order is not None
    assert read_order(request.requested_order) == case.order
    assert request.before != request.after
    assert (request.subject, request.request_id) == (f"request of {case.order.kind}", None)


def test_another_person_confirms_it_as_one_decision_that_names_both(case: Case) -> None:
    world = case.make_world()
    request = ask(world, case.order)
    done = record_of(confirm(world.process(), request, BY_BEN))
    assert (case.look(world), done.kind) == (case.after, case.order.kind)
    assert (done.decided_by, done.requested_by, done.request_id) == ("ben", "ana", request.decision_id)
    assert (done.before, done.after) == (request.before, request.after)
    assert done.people == f"ben, request {request.decision_id} of ana"
    assert prove(world.sink, PIPELINE).findings == ()


def test_confirmed_again_it_changes_nothing(case: Case) -> None:
    world = case.make_world()
    request = ask(world, case.order)
    first = confirm(world.process(), request, BY_BEN)
    made = dict(world.database.committed.decisions)
    assert confirm(world.process(), request, Decision("eve", "once more")) == Decided(first.record, is_new=False)
    assert (world.database.committed.decisions, case.look(world)) == (made, case.after)


def test_person_who_asked_cannot_confirm(case: Case) -> None:
    world = case.make_world()
    request = ask(world, case.order)
    with pytest.raises(DecisionRefusedError, match=r"(?s)not carried out\. Nothing was changed.*ana has asked for it"):
        confirm(world.process(), request, replace(BY_ANA, reason="another one"))
    assert case.look(world) == case.before


def test_confirmation_is_shown_without_a_change(case: Case) -> None:
    world = case.make_world()
    request = ask(world, case.order)
    shown = record_of(explain_confirmation(world.process(), request, BY_BEN))
    assert (shown.before, shown.after, case.look(world)) == (request.before, request.after, case.before)


def test_second_person_is_shown_the_same_of_an_acceptance_as_the_first() -> None:
    world = blocked_world()
    shown = explain(world.process(), Accept(2), BY_ANA).means
    assert "Checks that have failed: " in shown[0]
    assert explain_confirmation(world.process(), ask(world, Accept(2)), BY_BEN).means == shown


def late(world: World) -> Platform:
    """A process that starts when requests of now have just expired."""
    tomorrow = MemoryDecisions(world.database, clock=lambda: datetime.now(UTC) + timedelta(hours=24))
    return replace(world.process(), decisions=tomorrow)


def test_request_expires_after_a_day(case: Case) -> None:
    world = case.make_world()
    request = ask(world, case.order)
    with pytest.raises(DecisionRefusedError, match="has expired: a request is valid for 24 hours"):
        confirm(late(world), request, BY_BEN)
    assert case.look(world) == case.before
    again = record_of(carry_out(late(world), case.order, BY_ANA))
    assert (again.kind, again.decision_id > request.decision_id) == ("request", True)


def test_withdrawn_request_cannot_be_confirmed_nor_a_confirmed_one_withdrawn(case: Case) -> None:
    world = case.make_world()
    first = ask(world, case.order)
    ended = withdraw(world.process(), first, BY_BEN)
    assert (record_of(ended).kind, record_of(ended).request_id) == ("withdraw", first.decision_id)
    assert withdraw(world.process(), first, BY_ANA) == Decided(ended.record, is_new=False)
    with pytest.raises(DecisionRefusedError, match="ben withdrew it"):
        confirm(world.process(), first, BY_BEN)
    assert case.look(world) == case.before
    second = ask(world, case.order)
    confirm(world.process(), second, BY_BEN)
    with pytest.raises(DecisionRefusedError, match="ben confirmed it"):
        withdraw(world.process(), second, BY_ANA)


def test_request_is_refused_once_it_would_change_something_else(case: Case) -> None:
    world = case.make_world()
    request = ask(world, case.order)
    case.meddle(world)
    stored = world.database.committed
    with pytest.raises(DecisionRefusedError, match="Nothing was changed"):
        confirm(world.process(), request, BY_BEN)
    assert world.database.committed == stored


def test_request_whose_records_another_decision_has_dropped_is_refused() -> None:
    """The negative control of a repetition: nothing is left to change, and this request has not done it."""
    world = read_world()
    request = ask(world, DropQuarantined())
    world.process().decisions.drop_quarantined(
        PIPELINE, [each.range for each in world.process().ledger.find_quarantined(PIPELINE, None)], BY_BEN
    )
    with pytest.raises(DecisionRefusedError, match="would not change any more"):
        confirm(world.process(), request, BY_BEN)


def test_confirmation_that_another_one_overtakes_says_whose_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """The other person confirms after this one has looked whether the request is open."""
    world = read_world()
    request = ask(world, DropQuarantined())
    find_end = MemoryDecisions.find_end

    def find_before(self: MemoryDecisions, request_id: int) -> DecisionRecord | None:
        monkeypatch.setattr(MemoryDecisions, "find_end", find_end)
        found = find_end(self, request_id)
        confirm(world.process(), request, Decision("eve", "faster"))
        return found

    monkeypatch.setattr(MemoryDecisions, "find_end", find_before)
    with pytest.raises(DecisionRefusedError, match="eve confirmed it"):
        confirm(world.process(), request, BY_BEN)


def test_same_order_finds_the_open_request(case: Case) -> None:
    world = case.make_world()
    request = ask(world, case.order)
    again = carry_out(world.process(), case.order, BY_BEN)
    assert (again.record, again.is_new) == (request, False)


def test_without_the_key_one_person_decides_alone(case: Case) -> None:
    """The negative control."""
    world = case.make_world()
    world.second_person = ()
    done = record_of(carry_out(world.process(), case.order, BY_ANA))
    assert (case.look(world), done.kind, done.request_id) == (case.after, case.order.kind, None)


def test_order_without_a_reason_is_no_request(case: Case) -> None:
    world = case.make_world()
    with pytest.raises(DecisionRefusedError, match="needs a reason"):
        carry_out(world.process(), case.order, Decision("ana", " "))
    request = ask(world, case.order)
    with pytest.raises(DecisionRefusedError, match="needs a reason"):
        confirm(world.process(), request, Decision("ben", " "))


def test_order_that_would_change_nothing_is_no_request() -> None:
    world = read_world()
    nothing = DropQuarantined((OffsetRange(ORDERS_0, 0, 1),))
    assert carry_out(world.process(), nothing, BY_ANA) == Decided(None, is_new=False)
    assert world.database.committed.decisions == {}


def test_acceptance_whose_process_died_is_published_by_who_repeats_it() -> None:
    for repeat in (
        lambda world, request: confirm(world.process(), request, BY_BEN),
        lambda world, _: carry_out(world.process(), Accept(2), BY_ANA),
    ):
        world = blocked_world()
        request = ask(world, Accept(2))
        with pytest.raises(SimulatedCrashError):
            confirm(world.process(CrashOnce("before_commit")), request, BY_BEN)
        assert state_of(world) is BatchState.AUDITED
        assert not repeat(world, request).is_new
        assert state_of(world) is BatchState.PUBLISHED


def test_request_for_an_older_attempt_publishes_nothing_that_another_request_has_accepted() -> None:
    world = blocked_world()
    older = ask(world, Accept(2))
    take_again(world)
    newer = ask(world, Accept(2))
    with pytest.raises(SimulatedCrashError):
        confirm(world.process(CrashOnce("before_commit")), newer, BY_BEN)
    with pytest.raises(DecisionRefusedError, match="would not change any more"):
        confirm(world.process(), older, BY_BEN)
    assert state_of(world) is BatchState.AUDITED


def test_batch_that_a_rewind_discards_is_discarded_along_with_it() -> None:
    """The rewind names both people; what it brings along is not another decision about the request."""
    world = blocked_world()
    request = ask(world, TRUNCATE)
    confirm(world.process(), request, BY_BEN)
    made = [(each.kind, each.request_id) for each in world.database.committed.decisions.values()]
    assert made == [("request", None), ("discard", None), ("rewind", request.decision_id)]


def ask_to_erase(world: World, order: Erase = ERASE) -> tuple[DecisionRecord, str]:
    """Let ana ask; return the request, and the code that she is shown."""
    asked = carry_out(world.process(), order, BY_ANA)
    return record_of(asked), asked.code


def test_erasure_is_carried_out_when_another_person_repeats_its_key_with_the_code() -> None:
    world = read_world()
    request, code = ask_to_erase(world)
    assert (len(world.times_published()), request.before) == (6, {"rows": 1, "remembered_keys": 0})
    done = record_of(confirm(world.process(), request, BY_BEN, RepeatedKey(ERASE.key, code)))
    assert (done.kind, done.requested_by, done.before, len(world.times_published())) == (
        "erase",
        "ana",
        request.before,
        5,
    )
    assert not confirm(world.process(), request, BY_BEN, RepeatedKey(ERASE.key, code)).is_new
    assert prove(world.sink, PIPELINE).findings == ()


def test_first_person_hears_which_records_may_hold_the_key(caplog: pytest.LogCaptureFixture) -> None:
    """Also if nothing is left to erase, so that no request comes about."""
    for key in (ERASE.key, ErasureKey.parse(["message_id=nobody"])):
        world = read_world()
        world.broker.append(ORDERS_0, f"{ORDERS_0}@1 or nobody".encode())
        catch_up(world)
        carry_out(world.process(), Erase(key), BY_ANA)
        (told,) = [each.message for each in caplog.records if each.message.startswith(f"erase of {PIPELINE}: ")]
        assert "quarantine" in told
        caplog.clear()


def test_erasure_of_another_key_or_with_another_code_is_refused() -> None:
    """The other key has as many rows."""
    world = read_world()
    request, code = ask_to_erase(world)
    other = ErasureKey.parse([f"message_id={ORDERS_0}@2"])
    for repeated in (None, RepeatedKey(other, code), RepeatedKey(ERASE.key, ""), RepeatedKey(ERASE.key, f"{code}x")):
        said = "needs a key and a code" if repeated is None else "another key, or its code is another one"
        for do in (confirm, explain_confirmation):
            with pytest.raises(DecisionRefusedError, match=said) as refused:
                do(world.process(), request, BY_BEN, repeated)
            assert code not in str(refused.value)
            assert str(ORDERS_0) not in str(refused.value)
    assert len(world.times_published()) == 6


def test_request_of_an_erasure_keeps_neither_value_nor_code_and_no_two_are_alike() -> None:
    world = read_world()
    (first, code), (second, other) = ask_to_erase(world), ask_to_erase(world)
    kept = json.dumps([first.requested_order, first.before, first.after])
    assert (str(ORDERS_0) in kept, code in kept) == (False, False)
    assert first.requested_order is not None
    assert second.requested_order is not None
    assert first.requested_order["columns"] == ["message_id"]
    assert first.requested_order["sealed"] != second.requested_order["sealed"]
    assert (code != other, len(code)) == (True, 16)
    with pytest.raises(ValueError, match="erase is no order of a request"):
        read_order(first.requested_order)


@pytest.mark.parametrize("name", ["ana", "ben"])
def test_reason_that_names_the_value_is_refused_of_both_people(name: str) -> None:
    world = read_world()
    telling = Decision(name, f"{ORDERS_0}@1 left us")
    with pytest.raises(DecisionRefusedError, match="names a value"):
        carry_out(world.process(), ERASE, telling)
    request, code = ask_to_erase(world)
    with pytest.raises(DecisionRefusedError, match="names a value"):
        confirm(world.process(), request, telling, RepeatedKey(ERASE.key, code))
    assert len(world.times_published()) == 6


ORDERS: dict[TwoPersonOrder, AtOnce] = {
    TwoPersonOrder.ACCEPT: Accept(17),
    TwoPersonOrder.ACCEPT_LOSS: AcceptLoss((OffsetRange(ORDERS_0, 3, 9), OffsetRange(ORDERS_1, 0, 1)), discard=4),
    TwoPersonOrder.SKIP: Skip((OffsetRange(ORDERS_0, 3, 9),)),
    TwoPersonOrder.TRUNCATE: TRUNCATE,
    TwoPersonOrder.QUARANTINE_DROP: DropQuarantined((OffsetRange(ORDERS_0, 3, 9),)),
    TwoPersonOrder.ERASE: ERASE,
}


def test_each_order_needs_a_second_person_exactly_if_it_is_named() -> None:
    assert ORDERS.keys() == set(TwoPersonOrder)
    for named in TwoPersonOrder:
        assert [each for each, order in ORDERS.items() if needs_second_person(order, [named])] == [named]
    for order in (Rewind(StartPolicy.EARLIEST), Discard(1), Pause()):
        assert not needs_second_person(order, tuple(TwoPersonOrder))


@pytest.mark.parametrize(
    "order",
    [
        *(each for each in ORDERS.values() if not isinstance(each, Erase)),
        Rewind(MOMENT, truncate=True, allow_expired=True),
        Rewind({ORDERS_0: 0, ORDERS_1: 1_200}, truncate=True),
        DropQuarantined(),
    ],
    ids=repr,
)
def test_order_reads_back_from_json_as_it_was_written(order: TwoPerson) -> None:
    assert read_order(json.loads(json.dumps(write_order(order)))) == order


PAGE_ANA, PAGE_BEN = Actor("ana", role="airflow"), Actor("ben", role="airflow")
SHELL_ANA, SHELL_BEN = Actor("ana", 1000, "host7", "ana_s"), Actor("ben", 1001, "host7", "ben_s")


@pytest.mark.parametrize(
    ("asking", "confirming", "said"),
    [
        (PAGE_ANA, PAGE_BEN, ""),
        (SHELL_ANA, SHELL_BEN, ""),
        (SHELL_ANA, replace(SHELL_BEN, uid=1000, host="host8"), ""),
        (PAGE_ANA, PAGE_ANA, "ana has asked for it."),
        (SHELL_ANA, replace(SHELL_BEN, name="ana"), "ana has asked for it."),
        (PAGE_ANA, SHELL_BEN, "It was asked for at the page"),
        (SHELL_ANA, PAGE_BEN, "It was asked for at the command line"),
        (PAGE_ANA, replace(PAGE_BEN, role="ops"), "Two logins to PostgreSQL have recorded the names: airflow and ops."),
        (SHELL_ANA, replace(SHELL_BEN, uid=1000), "Both are one user of the operating system: uid 1000 @host7."),
        (SHELL_ANA, replace(SHELL_BEN, role="ana_s"), "Both are logged in to PostgreSQL as ana_s"),
    ],
)
def test_two_people_are_told_apart_by_what_each_place_knows(asking: Actor, confirming: Actor, said: str) -> None:
    found = explain_same(asking, confirming)
    assert found.startswith(said)
    assert bool(found) is bool(said)
