"""What a run is asked to do: the fields of the form as tables, what they mean, and which field a refusal names."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchledger.interfaces.trigger_form import (
    OWN_KEY,
    Action,
    Field,
    RunFacts,
    find_own_order,
    read_request,
    write_request,
)
from batchledger.lifecycle.orders import CatchUp, Request, Retake
from batchledger.model.batch import Decision
from batchledger.model.errors import ConfigurationError
from batchledger.model.offsets import OffsetRange, TopicPartition
from batchledger.planning.replay import Interval, Quarantined, Replay, Window

TOPICS = ("orders", "returns")
MANUAL = RunFacts("manual__1", created_by="ana")
SCHEDULED = RunFacts("scheduled__1")
FIRST, SECOND = datetime(2013, 1, 1, tzinfo=UTC), datetime(2013, 1, 2, tzinfo=UTC)
BACKFILL = RunFacts("scheduled__1", is_backfill=True, interval=(FIRST, SECOND), created_by="ana")
UNTOUCHED: dict[str, Any] = {
    "action": "catch_up", "reason": None, "max_records": None, "window_since": None, "window_until": None,
    "ranges": None, "allow_expired": False, "dry_run": False, "batch_id": None,
}  # fmt: skip
WINDOW = {"action": "replay_window", "window_since": "2013-01-01T00:00:00Z", "window_until": "2013-01-02T00:00:00Z"}
RANGES = {"action": "replay_ranges", "ranges": ["orders[3] 10..25"]}
QUARANTINE = RANGES | {"action": "replay_quarantine"}


def read(configuration: dict[str, Any], run: RunFacts = MANUAL) -> Request:
    return read_request(configuration, run, TOPICS)


def refusal(configuration: dict[str, Any], run: RunFacts = MANUAL) -> str:
    with pytest.raises(ConfigurationError) as refused:
        read(configuration, run)
    return str(refused.value)


@pytest.mark.parametrize("configuration", [{}, UNTOUCHED, UNTOUCHED | {"ranges": [""], "reason": "  "}])
def test_scheduled_run_catches_up_and_is_nobodys_decision(configuration: dict[str, Any]) -> None:
    assert read(configuration, SCHEDULED) == Request(CatchUp())


def test_form_left_as_it_is_catches_up_in_the_name_of_who_pressed_the_button() -> None:
    assert read(UNTOUCHED) == Request(CatchUp(), Decision("ana", "catch up"))
    assert read(UNTOUCHED | {"reason": " before the audit "}) == Request(CatchUp(), Decision("ana", "before the audit"))


@pytest.mark.parametrize(
    ("fields", "asked"),
    [
        ({"action": "one_batch", "max_records": 50}, Request(CatchUp(50), Decision("ana", "why"))),
        (WINDOW, Request(Replay(Window(FIRST, SECOND)), Decision("ana", "why"), key="manual__1#0")),
        (
            WINDOW | {"window_since": "2013-01-01T01:00:00.000+01:00", "allow_expired": True},
            Request(Replay(Window(FIRST, SECOND), allow_expired=True), Decision("ana", "why"), key="manual__1#0"),
        ),
        (
            {"action": "replay_ranges", "ranges": ["orders[3] 10..25", " returns[0] 0..1 ", ""]},
            Request(
                Replay((OffsetRange.parse("orders[3] 10..25"), OffsetRange.parse("returns[0] 0..1"))),
                Decision("ana", "why"),
                key="manual__1#0",
            ),
        ),
        (
            QUARANTINE,
            Request(
                Replay(Quarantined((OffsetRange.parse("orders[3] 10..25"),))), Decision("ana", "why"), key="manual__1#0"
            ),
        ),
        ({"action": "retry_batch", "batch_id": 17}, Request(Retake(17), Decision("ana", "why"))),
    ],
    ids=["one_batch", "replay_window", "window_in_another_zone", "replay_ranges", "replay_quarantine", "retry_batch"],
)
def test_each_action_becomes_its_order_with_the_reason_and_the_user(fields: dict[str, Any], asked: Request) -> None:
    assert read(UNTOUCHED | {"reason": "why"} | fields) == asked
    assert read({"reason": "why"} | fields) == asked


@pytest.mark.parametrize(
    ("fields", "run", "reason"),
    [
        (WINDOW, MANUAL, "a dry run"),
        (WINDOW | {"reason": "new transform"}, MANUAL, "new transform"),
        ({}, BACKFILL, "backfill of 2013-01-01T00:00:00+00:00 to 2013-01-02T00:00:00+00:00: a dry run"),
    ],
    ids=["window", "window_with_a_reason", "backfill"],
)
def test_dry_run_shows_the_same_replay_and_needs_no_reason(fields: dict[str, Any], run: RunFacts, reason: str) -> None:
    asked = read(UNTOUCHED | fields | {"dry_run": True}, run)
    kind = Interval if run.is_backfill else Window
    assert asked == Request(Replay(kind(FIRST, SECOND)), Decision("ana", reason), is_dry_run=True)


MOMENTS = st.datetimes(timezones=st.just(UTC))
RANGES_OF_ORDERS = st.lists(st.integers(0, 9), min_size=1, max_size=3, unique=True).map(
    lambda partitions: tuple(OffsetRange(TopicPartition("orders", each), each, each + 2) for each in partitions)
)
WINDOWS = st.tuples(MOMENTS, MOMENTS).filter(lambda pair: pair[0] < pair[1]).map(lambda pair: Window(*pair))
BY_RUN = st.one_of(
    st.builds(Retake, st.integers(1, 2**63 - 1)),
    st.builds(Replay, st.one_of(WINDOWS, RANGES_OF_ORDERS), st.booleans()),
    st.builds(Replay, RANGES_OF_ORDERS.map(Quarantined)),
)


@given(BY_RUN, st.text("abc", min_size=1), st.booleans())
def test_configuration_that_is_written_for_an_order_is_read_as_that_order(
    order: Replay | Retake, reason: str, is_dry_run: bool
) -> None:
    is_dry_run = is_dry_run and isinstance(order, Replay)
    asked = read(write_request(order, reason, is_dry_run=is_dry_run))
    assert (asked.order, asked.by, asked.is_dry_run) == (order, Decision("ana", reason), is_dry_run)


def test_dry_run_shows_a_replay_of_quarantine_too() -> None:
    what = Quarantined((OffsetRange.parse("orders[3] 10..25"),))
    assert read(UNTOUCHED | QUARANTINE | {"dry_run": True}) == Request(
        Replay(what), Decision("ana", "a dry run"), is_dry_run=True
    )


def test_backfill_run_publishes_its_interval_again_whatever_its_id_says() -> None:
    decision = Decision("ana", "backfill of 2013-01-01T00:00:00+00:00 to 2013-01-02T00:00:00+00:00")
    assert read({}, BACKFILL) == Request(Replay(Interval(FIRST, SECOND)), decision, key="scheduled__1#0")


def test_backfill_takes_a_reason_and_allows_expired_records_from_its_configuration() -> None:
    asked = read(UNTOUCHED | {"allow_expired": True, "reason": "schema fixed"}, BACKFILL)
    assert asked.order == Replay(Interval(FIRST, SECOND), allow_expired=True)
    assert asked.by.reason.endswith("to 2013-01-02T00:00:00+00:00: schema fixed")


def test_run_that_is_cleared_asks_anew_and_does_not_pass_for_the_work_of_its_creator() -> None:
    """Airflow keeps the creator's name when another user clears the run, or has a backfill take it again."""
    again = RunFacts("scheduled__1", is_backfill=True, interval=(FIRST, SECOND), times_cleared=2, created_by="ana")
    asked = read({}, again)
    assert asked.key == "scheduled__1#2"
    assert asked.by.decided_by == "unknown, cleared a run of ana (see Airflow's audit log)"


def test_run_created_again_under_the_id_of_a_deleted_one_asks_anew() -> None:
    """The id of a backfill run is made of its interval, and a run that is created again was never cleared."""
    first, again = (replace(BACKFILL, started_at=SECOND + timedelta(days=day)) for day in (1, 2))
    keys = [asked.key for asked in (read({}, first), read({}, first), read({}, again))]
    assert keys[0] == keys[1] != keys[2]


def test_order_without_a_user_is_recorded_as_nobody_knows_whose() -> None:
    assert read(RANGES | {"reason": "why"}, SCHEDULED) == Request(
        Replay((OffsetRange.parse("orders[3] 10..25"),)), Decision("unknown", "why"), key="scheduled__1#0"
    )


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"action": "one_batch", "reason": "x"}, "max_records: action one_batch needs it"),
        ({"action": "one_batch", "max_records": 5}, "reason: action one_batch needs it"),
        (WINDOW | {"reason": " "}, "reason: action replay_window needs it"),
        (RANGES, "reason: action replay_ranges needs it"),
        (QUARANTINE, "reason: action replay_quarantine needs it"),
        ({"action": "replay_quarantine", "reason": "x"}, "ranges: action replay_quarantine needs it"),
        (
            QUARANTINE | {"reason": "x", "allow_expired": True},
            "allow_expired: does not belong to action replay_quarantine",
        ),
        (
            QUARANTINE | {"reason": "x", "ranges": ["clicks[0] 0..5"]},
            "ranges: clicks[0] 0..5: the pipeline does not read this topic; it reads orders, returns",
        ),
        ({"action": "retry_batch", "reason": "x"}, "batch_id: action retry_batch needs it"),
        ({"action": "replay_ranges", "ranges": [" ", ""], "reason": "x"}, "ranges: action replay_ranges needs it"),
        ({"max_records": 5}, "max_records: does not belong to action catch_up"),
        ({"allow_expired": True}, "allow_expired: does not belong to action catch_up"),
        ({"dry_run": True}, "dry_run: does not belong to action catch_up"),
        (
            {"action": "one_batch", "max_records": 5, "dry_run": True},
            "dry_run: does not belong to action one_batch",
        ),
        ({"action": "retry_batch", "batch_id": 3, "dry_run": True}, "dry_run: does not belong to action retry_batch"),
        (RANGES | {"reason": "x", "batch_id": 3}, "batch_id: does not belong to action replay_ranges"),
        (WINDOW | {"reason": "x", "ranges": ["orders[0] 0..1"]}, "ranges: does not belong to action replay_window"),
        (
            WINDOW | {"reason": "x", "window_until": "2013-01-01T00:00:00Z"},
            "window_until: has to be after window_since",
        ),
        (WINDOW | {"reason": "x", "window_since": "2013-02-30T00:00:00Z"}, "window_since: '2013-02-30T00:00:00Z' is "),
        (WINDOW | {"reason": "x", "window_until": "2013-03-01T00:00:00"}, "window_until: '2013-03-01T00:00:00' is not"),
        (RANGES | {"reason": "x", "ranges": ["orders[3]"]}, "ranges: 'orders[3]' is not an offset range; write it as"),
        (RANGES | {"reason": "x", "ranges": ["orders[3] 9..5"]}, "ranges: orders[3] 9..5 is not a range"),
        (RANGES | {"reason": "x", "ranges": ["orders[3] 5..5"]}, "ranges: orders[3] 5..5: holds no offset"),
        (
            RANGES | {"reason": "x", "ranges": ["clicks[0] 0..5"]},
            "ranges: clicks[0] 0..5: the pipeline does not read this topic; it reads orders, returns",
        ),
        (
            RANGES | {"reason": "x", "ranges": ["orders[0] 0..5", "orders[0] 3..9"]},
            "ranges: orders[0] 3..5: named more than once",
        ),
        ({"max_record": 5}, "max_record: there is no such field; did you mean max_records?"),
    ],
)
def test_fault_is_refused_by_the_name_of_its_field(fields: dict[str, Any], message: str) -> None:
    assert refusal(UNTOUCHED | fields).startswith(message)


LARGEST = 2**63 - 1
# What each field may be, in words, and values of JSON that it may not be.
WRONG: dict[str, tuple[str, list[Any]]] = {
    "action": (
        "one of catch_up, one_batch, replay_window, replay_ranges, replay_quarantine, retry_batch",
        ["everything", "CATCH_UP", 1, True, ["catch_up"], {"action": "catch_up"}, 1.5],
    ),
    "reason": ("text, without NUL", [5, True, False, 0, ["why"], {"why": "so"}, "a\0b", "half \ud800"]),
    "max_records": (
        f"a whole number from 1 to {LARGEST}, without quotes",
        ["5", "", "five", 0, -1, True, False, 1.5, 5.0, float("nan"), float("inf"), LARGEST + 1, 10**4000, [5], {}],
    ),
    "batch_id": (
        f"a whole number from 1 to {LARGEST}, without quotes",
        ["17", "", 0, -17, True, False, 17.0, float("nan"), LARGEST + 1, [17], [], {"id": 17}],
    ),
    "window_since": ("text, without NUL", [20130101, 1.5, True, False, ["2013-01-01T00:00:00Z"], {"at": "2013"}]),
    "window_until": ("text, without NUL", [20130101, 1.5, True, False, ["2013-01-02T00:00:00Z"], {"at": "2013"}]),
    "ranges": (
        "a list of texts such as orders[3] 1200..1500",
        ["orders[3] 10..25", "", 5, True, False, {"orders[3]": "10..25"}, [5], [0], [["orders[3]"]], [{}], [False]],
    ),
    "allow_expired": (
        "true or false, without quotes",
        ["false", "true", "False", "no", "", 0, 1, 0.0, [], [False], {}, {"allowed": False}],
    ),
    "dry_run": ("true or false, without quotes", ["false", "true", "no", "", 0, 1, 0.0, [], [True], {}]),
}  # fmt: skip
# The rest of each order is fine, so that the one value alone is what is refused.
ASKED: dict[str, dict[str, Any]] = {
    "action": {},
    "reason": RANGES,
    "max_records": {"action": "one_batch", "reason": "why"},
    "batch_id": {"action": "retry_batch", "reason": "why"},
    "window_since": WINDOW | {"reason": "why"},
    "window_until": WINDOW | {"reason": "why"},
    "ranges": RANGES | {"reason": "why"},
    "allow_expired": RANGES | {"reason": "why"},
    "dry_run": RANGES | {"reason": "why"},
}


@pytest.mark.parametrize(
    ("name", "value"),
    [(name, value) for name, (_, values) in WRONG.items() for value in values],
    ids=lambda each: repr(each)[:30],
)
def test_value_of_a_wrong_type_is_refused_by_the_name_of_its_field_and_never_guessed_at(name: str, value: Any) -> None:
    """A setting of Airflow lets a configuration pass that its own form would refuse: "false" was taken for true."""
    (line,) = refusal(UNTOUCHED | ASKED[name] | {name: value}).splitlines()
    assert line.startswith(f"{name}: has to be {WRONG[name][0]}")
    assert "; found " in line
    assert refusal(ASKED[name] | {name: value}, BACKFILL).startswith(f"{name}: has to be")


def test_every_field_has_wrong_values_in_the_table() -> None:
    assert list(WRONG) == list(ASKED)
    assert set(WRONG) == set(Field)


@pytest.mark.parametrize("value", ["x" * 10**6, ["x" * 10**6] * 1000, {"x" * 10**6: "x"}, [[[["x"] * 1000] * 1000]]])
@pytest.mark.parametrize("name", WRONG)
def test_refusal_is_short_however_long_the_value_is(name: str, value: Any) -> None:
    fields = UNTOUCHED | {"action": "replay_window", **WINDOW, "reason": "why"} | {name: value}
    if name == "reason" and isinstance(value, str):
        return
    assert len(refusal(fields)) < 2000


@pytest.mark.parametrize("text", ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00"])
def test_moment_that_only_its_zone_puts_into_a_year_is_refused(text: str) -> None:
    assert refusal(UNTOUCHED | WINDOW | {"reason": "x", "window_since": text}).startswith(
        f"window_since: '{text}' is not"
    )


def test_all_faults_of_one_kind_are_told_at_once() -> None:
    lines = refusal({"action": "replay_window", "batch_id": 3}).splitlines()
    assert [line.partition(":")[0] for line in lines] == ["window_since", "window_until", "reason", "batch_id"]
    lines = refusal({"action": "replay_ranges", "reason": "x", "ranges": ["a", "clicks[0] 0..5"]}).splitlines()
    assert [line.partition(":")[0] for line in lines] == ["ranges", "ranges"]


@pytest.mark.parametrize("fields", [{"max_records": 5}, {"batch_id": 1}, {"window_since": "2013-01-01T00:00:00Z"}])
def test_backfill_refuses_what_belongs_to_a_single_run(fields: dict[str, Any]) -> None:
    (name,) = fields
    assert refusal(UNTOUCHED | fields, BACKFILL).startswith(f"{name}: does not belong to a backfill")


def test_backfill_refuses_another_action() -> None:
    assert refusal(RANGES | {"reason": "x"}, BACKFILL).startswith("action: a backfill publishes the interval")


@pytest.mark.parametrize("interval", [None, (FIRST, FIRST)])
def test_backfill_of_a_run_from_before_the_schedule_had_intervals_is_refused(
    interval: tuple[datetime, datetime] | None,
) -> None:
    run = RunFacts("scheduled__1", is_backfill=True, interval=interval)
    assert "has no interval to publish again" in refusal({}, run)


def test_what_other_tools_leave_in_the_configuration_is_ignored() -> None:
    others = {"openlineage": {"parent": "x"}, "airflow/task_span_detail_level": 2}
    assert read(others, SCHEDULED) == Request(CatchUp())


@pytest.mark.parametrize("action", Action)
def test_every_action_but_catching_up_asks_for_a_reason(action: Action) -> None:
    if action is Action.CATCH_UP:
        assert read({"action": action}, SCHEDULED) == Request(CatchUp())
    else:
        assert f"reason: action {action} needs it" in refusal({"action": action})


@pytest.mark.parametrize(
    ("configuration", "order"),
    [
        ({}, {}),
        ({"day": "monday", "action": "paint", "ledger": 1}, {}),
        ({OWN_KEY: {}}, {}),
        ({OWN_KEY: None}, {}),
        ({OWN_KEY: {"action": "catch_up"}, "action": "catch_up"}, {"action": "catch_up"}),
    ],
)
def test_configuration_of_a_persons_own_dag_is_his_but_for_one_key(
    configuration: dict[str, Any], order: dict[str, Any]
) -> None:
    assert find_own_order(configuration) == order


@pytest.mark.parametrize(
    ("configuration", "told"),
    [
        ({"batchledgr": {"action": "catch_up"}}, "'batchledgr' in the configuration of the run asks for nothing"),
        ({"action": "replay_ranges", "ranges": ["orders[0] 1..2"]}, "'action' in the configuration of the run asks"),
        ({"Batchledger": {}}, "'Batchledger' in the configuration of the run asks for nothing"),
        ({OWN_KEY: "catch_up"}, "is not a mapping"),
        ({OWN_KEY: {"pipelin": "orders"}}, "pipelin: there is no such field below batchledger"),
    ],
)
def test_order_that_would_be_ignored_in_a_persons_own_dag_is_refused(configuration: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigurationError, match=told) as refused:
        find_own_order(configuration)
    assert OWN_KEY in str(refused.value)
