"""Alerts over real services: what is wrong with a real topic arrives at a real endpoint, and is listed."""

from time import monotonic

import pytest

from batchledger.lifecycle.run_batch import run_once
from batchledger.model.batch import BatchState
from batchledger.model.errors import BatchBlockedError
from tests.endpoints import Mailbox, Webhook, free_port
from tests.integration.test_cli import ask, batchledger
from tests.support import TestPipeline, Workplace, delete_records


def block(pipeline: TestPipeline) -> None:
    """A commit marker on a topic that declares no holes."""
    pipeline.send_in_transaction([b"{}"], partition=0, commit=True)
    with pytest.raises(BatchBlockedError):
        run_once(pipeline.platform(), "run-1")


def test_blocked_batch_is_told_by_mail_and_webhook_once_and_once_more_when_it_is_over(
    workplace: Workplace, webhook: Webhook, mailbox: Mailbox
) -> None:
    pipeline = workplace.create(partitions=1, alerts=["ops", "mail"])
    block(pipeline)
    for _ in range(3):
        ask("alerts", "send", pipeline.name)
    title = f"[batchledger] {pipeline.name}: blocked — no_unexplained_holes, balance_closes"
    assert webhook.titles == mailbox.titles == [title]
    assert f"{pipeline.name}[0]" in mailbox.pages[0]
    (shown,) = ask("alerts", pipeline.name)
    assert (shown["kind"], shown["ended_at"]) == ("blocked", None)
    assert {each["channel"]: each["sent_at"] is not None for each in shown["deliveries"]} == {"ops": True, "mail": True}
    assert shown["title"] in " ".join(batchledger("alerts", pipeline.name).stdout.split())
    batch = str(shown["batch_id"])
    assert webhook.received[0]["command"] == f"batchledger batch {batch}"
    ask("accept", batch, "--reason", "a marker, no record")
    (told,) = ask("alerts", "send", pipeline.name)
    assert (told["ended"], told["sent"]) == ([shown["title"]], 2)
    assert webhook.titles[1].startswith(f"{title}: over after ")
    assert ask("alerts", pipeline.name)[0]["ended_at"] is not None


def test_endpoint_that_holds_the_connection_costs_seconds_and_nothing_else(
    workplace: Workplace, webhook: Webhook, mailbox: Mailbox
) -> None:
    """As slow as one likes: it answers when the test is over."""
    pipeline = workplace.create(partitions=1, alerts=["ops", "mail"])
    webhook.may_answer.clear()
    block(pipeline)
    started = monotonic()
    (told,) = ask("alerts", "send", pipeline.name)
    assert monotonic() - started < 25
    assert (told["sent"], list(told["failed"])) == (1, ["ops"])
    assert len(mailbox.titles) == 1
    batch = pipeline.platform().ledger.find_open_batch(pipeline.name)
    assert batch is not None
    assert batch.state is BatchState.BLOCKED


def test_loss_is_told_and_stays_open_while_kafka_cannot_be_asked(workplace: Workplace, webhook: Webhook) -> None:
    pipeline = workplace.create(partitions=1, alerts=["ops"])
    pipeline.send(10, partitions=1)
    ask("run", pipeline.name)
    pipeline.send(10, partitions=1)
    delete_records(workplace.kafka_options, pipeline.name, 0, 15)
    ask("alerts", "send", pipeline.name)
    assert webhook.titles == [f"[batchledger] {pipeline.name}: unread records are lost"]
    assert f"{pipeline.name}[0] 10..15" in webhook.received[0]["text"]
    pipeline.path.write_text(pipeline.path.read_text().replace("source:", "source:\n  connection: nowhere", 1))
    nowhere = f'{{"conn_type": "kafka", "extra": {{"bootstrap.servers": "127.0.0.1:{free_port()}"}}}}'
    done = batchledger("alerts", "send", pipeline.name, AIRFLOW_CONN_NOWHERE=nowhere)
    assert done.returncode == 0, done.stderr
    titles = {each["title"] for each in ask("alerts", pipeline.name) if each["ended_at"] is None}
    assert titles == {"unread records are lost", "the source cannot be asked"}


def test_open_incidents_are_in_status(workplace: Workplace) -> None:
    pipeline = workplace.create(partitions=1)
    block(pipeline)
    ask("alerts", "send", pipeline.name)
    found = [each for each in ask("status")["incidents"] if each["pipeline"] == pipeline.name]
    assert [each["title"] for each in found] == ["blocked — no_unexplained_holes, balance_closes"]


def test_channel_that_does_not_deliver_exits_with_1_and_a_missing_one_with_2(webhook: Webhook) -> None:
    assert batchledger("alerts", "test", "ops").returncode == 0
    assert webhook.titles == ["[batchledger] a trial message through ops"]
    webhook.status = 500
    done = batchledger("alerts", "test", "ops")
    assert (done.returncode, "answered 500" in done.stderr) == (1, True)
    assert batchledger("alerts", "test", "no_such_connection").returncode == 2
