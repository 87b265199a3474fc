"""One alert for each incident, and a follow-up at its end, whatever the number of looks."""

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from batchledger.model.checks import Severity
from batchledger.model.findings import IncidentKind
from batchledger.model.incidents import (
    ChannelFailure,
    Condition,
    Findings,
    Incident,
    Settlement,
    describe_failing_channels,
    settle,
)

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
ALL_KINDS = frozenset(IncidentKind)


def condition(kind: IncidentKind = IncidentKind.BLOCKED, subject: str = "", title: str = "") -> Condition:
    return Condition("orders", kind, subject, Severity.CRITICAL, title or kind)


def incident(found: Condition, number: int = 1, seen_at: datetime = NOON) -> Incident:
    return Incident(number, found, NOON, seen_at)


def test_a_condition_that_is_found_first_opens_an_incident() -> None:
    assert settle([], Findings((condition(),), ALL_KINDS), NOON) == Settlement(opened=(condition(),))


def test_a_condition_that_is_found_again_is_not_told_again_but_its_newest_numbers_are_kept() -> None:
    later, newer = NOON + timedelta(minutes=5), condition(IncidentKind.LAG, title="lag 900")
    settled = settle([incident(condition(IncidentKind.LAG, title="lag 500"))], Findings((newer,), ALL_KINDS), later)
    assert settled == Settlement(continued=(Incident(1, newer, NOON, later),))


def test_an_incident_is_over_when_a_look_no_longer_finds_it() -> None:
    later = NOON + timedelta(minutes=14)
    (ended,) = settle([incident(condition())], Findings((), ALL_KINDS), later).ended
    assert (ended.ended_at, ended.duration) == (later, timedelta(minutes=14))


def test_what_was_not_looked_for_is_not_over() -> None:
    open_incidents = [incident(condition(IncidentKind.LOSS))]
    assert settle(open_incidents, Findings((), frozenset({IncidentKind.BLOCKED})), NOON) == Settlement()


def test_what_a_look_knows_nothing_of_is_not_over() -> None:
    found = condition(IncidentKind.CHECK_FAILED, "carrier_not_null")
    assert settle([incident(found)], Findings((), ALL_KINDS, frozenset({found.key})), NOON) == Settlement()


def test_another_subject_is_another_incident() -> None:
    settled = settle(
        [incident(condition(subject="batch 17"))], Findings((condition(subject="batch 18"),), ALL_KINDS), NOON
    )
    assert [each.subject for each in settled.opened] == ["batch 18"]
    assert [each.condition.subject for each in settled.ended] == ["batch 17"]


def test_a_look_that_began_earlier_does_not_end_what_a_later_one_has_seen() -> None:
    open_incidents = [incident(condition(), seen_at=NOON + timedelta(seconds=1))]
    assert settle(open_incidents, Findings((), ALL_KINDS), NOON) == Settlement()
    assert settle(open_incidents, Findings((condition(),), ALL_KINDS), NOON) == Settlement()


def test_two_conditions_of_one_key_are_one_incident() -> None:
    first, second = condition(title="first"), condition(title="second")
    assert settle([], Findings((first, second), ALL_KINDS), NOON).opened == (first,)


KINDS = st.sampled_from([IncidentKind.BLOCKED, IncidentKind.LAG, IncidentKind.LOSS])
CONDITIONS = st.builds(condition, kind=KINDS, subject=st.sampled_from(["", "a", "b"]))


@given(st.lists(st.tuples(st.lists(CONDITIONS), st.frozensets(KINDS)), max_size=8))
def test_every_incident_is_told_once_at_its_beginning_and_once_at_its_end(
    looks: list[tuple[list[Condition], frozenset[IncidentKind]]],
) -> None:
    """Between two looks that found it, no look for its kind missed it; and one key never has two open incidents."""
    open_by_key: dict[tuple[str, str, str], Incident] = {}
    for number, (found, looked_for) in enumerate(looks):
        now = NOON + timedelta(minutes=number)
        settled = settle(list(open_by_key.values()), Findings(tuple(found), looked_for), now)
        for opened in settled.opened:
            assert opened.key not in open_by_key
            open_by_key[opened.key] = Incident(number, opened, now, now)
        for ended in settled.ended:
            del open_by_key[ended.condition.key]
        keys = {each.key for each in found}
        assert keys <= set(open_by_key)
        assert all(key in keys for key, each in open_by_key.items() if each.condition.kind in looked_for)


def test_failing_channel_is_told_with_how_much_waits_and_whether_others_arrive() -> None:
    failures = [ChannelFailure("ops", 5, 3, "answered 400", NOON), ChannelFailure("mail", 3, 1, "answered 554")]
    ops, mail = describe_failing_channels("orders", failures, ["ops", "mail"], []).found
    assert ops.lines == (
        "3 waiting, tried up to 5 times: answered 400",
        "the last one that arrived was sent at 2026-11-21 12:00 UTC",
    )
    assert mail.lines[1] == "it has never delivered anything of this pipeline"
