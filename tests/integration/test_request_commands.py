"""Orders that need two people, on the command line and real services: each person has a login to PostgreSQL."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

from batchledger.ledger.decisions import PostgresDecisions
from batchledger.ledger.requests import load_request
from batchledger.lifecycle.execution import RepeatedKey, carry_out, confirm
from batchledger.lifecycle.orders import DropQuarantined
from batchledger.lifecycle.platform import Platform
from batchledger.model.batch import Decision
from batchledger.model.erasure import ErasureKey
from batchledger.reading import protect_key
from batchledger.wiring import verify_pipeline
from tests.conftest import as_superuser
from tests.contract.warehouses import role_of
from tests.integration.test_cli import ask, batchledger
from tests.support import TestPipeline, Workplace

WHY = ("--reason", "ticket 812")


@pytest.fixture
def pipeline(workplace: Workplace) -> TestPipeline:
    """One record is in quarantine; dropping it needs two people."""
    pipeline = workplace.create(partitions=1, second_person=["quarantine-drop"])
    pipeline.send_raw([(0, b"not json")])
    pipeline.send(1, partitions=1)
    ask("run", pipeline.name)
    return pipeline


@contextmanager
def logged_in(pipeline: TestPipeline) -> Iterator[Platform]:
    """The platform of a person who is logged in to PostgreSQL by a login of their own."""
    role, dsn = f"colleague_{uuid4().hex[:12]}", pipeline.workplace.dsn
    with psycopg.connect(as_superuser(dsn), autocommit=True) as connection:
        create = sql.SQL("create role {} login password {} in role {}")
        connection.execute(create.format(sql.Identifier(role), role, sql.Identifier(role_of(dsn))))
        try:
            decisions = PostgresDecisions(make_conninfo(dsn, user=role, password=role))
            yield replace(pipeline.platform(), decisions=decisions)
        finally:
            connection.execute(sql.SQL("drop owned by {0}; drop role {0}").format(sql.Identifier(role)))


@pytest.fixture
def colleague(pipeline: TestPipeline) -> Iterator[Platform]:
    with logged_in(pipeline) as platform:
        yield platform


def count_quarantined(pipeline: TestPipeline) -> int:
    return len(ask("quarantine", "list", pipeline.name)["records"])


def test_order_waits_for_another_person_and_the_one_who_asked_can_only_withdraw_it(pipeline: TestPipeline) -> None:
    name = pipeline.name
    asked = ask("quarantine", "drop", name, "--all", *WHY)
    number = str(asked["decision_id"])
    assert (asked["kind"], count_quarantined(pipeline)) == ("request", 1)
    told = " ".join(batchledger("quarantine", "drop", name, "--all", *WHY).stdout.split())
    assert "asked for already, nothing was changed" in told
    assert f"batchledger confirm {number} --reason WHY" in told
    assert [str(each["decision_id"]) for each in ask("requests", name)] == [number]
    assert name in {each["pipeline"] for each in ask("requests")}
    for dry_run in ((), ("--dry-run",)):
        refused = batchledger("confirm", number, *dry_run, *WHY)
        assert (refused.returncode, "has asked for it" in refused.stderr) == (2, True)
    assert count_quarantined(pipeline) == 1
    assert batchledger("batches", name).stdout.count("would change:") == 1
    assert f"Request {number} of {name} is withdrawn." in batchledger("withdraw", number, *WHY).stdout
    assert ask("requests", name) == []
    assert batchledger("confirm", number, *WHY).returncode == 2
    assert batchledger("confirm", "9000000000", *WHY).returncode == 2
    assert verify_pipeline(pipeline.config).holds


def test_request_of_another_person_is_shown_then_confirmed_as_one_decision(
    pipeline: TestPipeline, colleague: Platform
) -> None:
    of_colleague = Decision("colleague", "ticket 812", 4711, "elsewhere")
    request = carry_out(colleague, DropQuarantined(), of_colleague).record
    assert request is not None
    number = str(request.decision_id)
    shown = ask("confirm", number, "--dry-run", *WHY)
    assert (shown["dry_run"], shown["before"], count_quarantined(pipeline)) == (True, request.before, 1)
    done = ask("confirm", number, *WHY)
    assert (done["kind"], done["requested_by"], done["request_id"]) == (
        "quarantine-drop",
        "colleague",
        request.decision_id,
    )
    assert count_quarantined(pipeline) == 0
    assert not ask("confirm", number, *WHY)["is_new"]
    assert batchledger("withdraw", number, *WHY).returncode == 2
    assert [(each["kind"], each["requested_by"]) for each in ask("batches", pipeline.name)["decisions"]] == [
        ("quarantine-drop", "colleague"),
        ("request", None),
    ]
    assert verify_pipeline(pipeline.config).holds


def test_login_that_two_people_share_confirms_nothing(pipeline: TestPipeline) -> None:
    """The negative control: the names and the users of the operating system differ."""
    request = carry_out(pipeline.platform(), DropQuarantined(), Decision("colleague", "why", 4711, "elsewhere")).record
    assert request is not None
    refused = batchledger("confirm", str(request.decision_id), *WHY)
    assert (refused.returncode, "cannot tell two people apart" in refused.stderr) == (2, True)
    assert count_quarantined(pipeline) == 1


@pytest.mark.parametrize("source", [{}, {"protect": {"message_id": "hash"}}])
def test_erasure_needs_its_key_and_the_code_from_both_people(workplace: Workplace, source: dict[str, Any]) -> None:
    """The same user of the operating system cannot confirm, so a colleague's process does it."""
    pipeline = workplace.create(partitions=1, second_person=["erase"], source=source)
    pipeline.send(3, partitions=1)
    ask("run", pipeline.name)
    key = f"message_id={pipeline.sent[1]}"
    asked = ask("erase", pipeline.name, "--key", key, *WHY)
    assert (asked["kind"], pipeline.count_target_rows()) == ("request", 3)
    number, code = str(asked["decision_id"]), asked["code"]
    for said, *repeated in (
        ("needs a key and a code",),
        ("erases another key", "--key", key, "--code", "wrong"),
        ("erases another key", "--key", "message_id=x", "--code", code),
    ):
        refused = batchledger("confirm", number, *repeated, *WHY)
        assert (refused.returncode, said in refused.stderr) == (2, True)
    assert "An erasure also needs" in batchledger("requests").stdout
    own = batchledger("confirm", number, "--key", key, "--code", code, *WHY)
    assert (own.returncode, "has asked for it" in own.stderr) == (2, True)
    request = load_request(workplace.dsn, int(number))
    with logged_in(pipeline) as colleague:
        decision = Decision("colleague", "ticket 812", 4711, "elsewhere")
        confirm(colleague, request, decision, RepeatedKey(protect_key(pipeline.config, ErasureKey.parse([key])), code))
    assert pipeline.count_target_rows() == 2
    stored = pipeline.query("select d::text from batchledger.decision d where pipeline = %s", pipeline.name)
    assert [text for (text,) in stored if pipeline.sent[1] in text or code in text] == []
    assert verify_pipeline(pipeline.config).holds
