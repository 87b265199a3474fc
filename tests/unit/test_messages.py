"""What people read: title, numbers, links and the command that answers."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from batchledger.model.checks import Severity
from batchledger.model.findings import IncidentKind
from batchledger.model.incidents import Condition, Event, Incident
from batchledger.monitoring.messages import LINE_CHARACTERS, Links, compose

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
CONDITION = Condition(
    "orders",
    IncidentKind.BLOCKED,
    "batch 17",
    Severity.CRITICAL,
    "blocked — no_unexplained_holes",
    ("batch 17 of orders stays invisible", "no_unexplained_holes: 2 offsets, for example orders[3]@1200"),
    "batchledger batch 17",
    17,
    "scheduled__2026-11-21T12:00:00+00:00",
)
OPENED = Incident(5, CONDITION, NOON, NOON)
ENDED = Incident(5, CONDITION, NOON, NOON + timedelta(minutes=10), NOON + timedelta(minutes=14))
LINKS = Links("http://127.0.0.1:8080/")


def test_beginning_is_told_with_numbers_coordinates_links_and_command() -> None:
    message = compose(OPENED, Event.OPENED, LINKS)
    assert message.title == "[batchledger] orders: blocked — no_unexplained_holes"
    assert message.text == (
        "batch 17 of orders stays invisible\n"
        "no_unexplained_holes: 2 offsets, for example orders[3]@1200\n"
        "\n"
        "Look at it: batchledger batch 17\n"
        "Page: http://127.0.0.1:8080/plugin/batchledger/batchledger/pipelines/orders/batches/17\n"
        "Airflow run: http://127.0.0.1:8080/dags/orders/runs/scheduled__2026-11-21T12%3A00%3A00%2B00%3A00\n"
        "Data Docs: http://127.0.0.1:8080/batchledger/docs/orders/17\n"
        "Incident: 5, critical since 2026-11-21 12:00:00 UTC"
    )
    assert not message.is_good


def test_end_says_how_long_it_was() -> None:
    message = compose(ENDED, Event.ENDED, LINKS)
    assert message.title == "[batchledger] orders: blocked — no_unexplained_holes: over after 14 min"
    assert message.text.startswith("over since 2026-11-21 12:14:00 UTC. It was:\nbatch 17 of orders")
    assert message.is_good


def test_document_holds_what_a_program_needs_and_a_text_for_chat_services() -> None:
    document = compose(ENDED, Event.ENDED, LINKS).document
    assert (document["event"], document["kind"], document["severity"]) == ("ended", "blocked", "critical")
    assert (document["pipeline"], document["batch_id"], document["incident_id"]) == ("orders", 17, 5)
    assert (document["opened_at"], document["ended_at"]) == ("2026-11-21T12:00:00+00:00", "2026-11-21T12:14:00+00:00")
    assert document["text"].startswith("[batchledger] orders: blocked")


def test_beginning_that_is_sent_late_says_when_it_ended() -> None:
    assert "over since 2026-11-21 12:14:00 UTC" in compose(ENDED, Event.OPENED, LINKS).text


def test_ways_on_stand_in_the_beginning_alone() -> None:
    """A command of the past would be run by a person who reads in a hurry."""
    ways = ("", "Or publish what is staged: batchledger accept 17 --reason WHY")
    begun = replace(OPENED, condition=replace(CONDITION, lines=(*CONDITION.lines, "    orders[3]@1200", *ways)))
    ended = replace(begun, ended_at=ENDED.ended_at)
    assert "\n    orders[3]@1200\n\nOr publish" in compose(begun, Event.OPENED, LINKS).text
    told = compose(ended, Event.ENDED, LINKS)
    assert "orders[3]@1200" in told.text
    assert "accept" not in told.text
    assert "accept" not in repr(told.document)


def test_run_of_the_command_line_and_unknown_airflow_have_no_link() -> None:
    assert LINKS.to_run("orders", "cli__2026-11-21T12:00:00__ana@host") is None
    assert Links().to_run("orders", "scheduled__1") is None
    assert Links().to_docs("orders", 17) is None


def test_title_is_one_line_and_no_line_is_endless() -> None:
    odd = Condition("orders", IncidentKind.CHECK_FAILED, "x", Severity.INFO, "a\r\nBcc: all@example.com", ("x" * 9999,))
    message = compose(Incident(1, odd, NOON, NOON), Event.OPENED, LINKS)
    assert message.title == "[batchledger] orders: a Bcc: all@example.com"
    assert len(message.text.splitlines()[0]) == LINE_CHARACTERS
