"""The command line as scripts use it: one JSON document on standard output, and exit codes that say what happened.

Every command runs in a process of its own. Most are forked with the heavy imports behind them; what an import may spoil
is shown by two that start from nothing.
"""

import json
import os
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any

import psycopg
import pytest
from confluent_kafka import Producer

from batchledger.config.pipeline_file import find_pipeline_files
from tests.conftest import ROOT, SERVICES
from tests.forked import run_command
from tests.support import Workplace, delete_records


def batchledger(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the command in a process of its own."""
    return run_command(arguments, os.environ | environment)


def batchledger_from_nothing(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command as a shell does, with a new interpreter."""
    command = [sys.executable, "-c", "from batchledger.cli import main; main()", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)


def ask(*arguments: str, **environment: str) -> Any:
    """Run a command that has to succeed and return its JSON."""
    return read_answer(batchledger(*arguments, "--json", **environment))


def read_answer(done: subprocess.CompletedProcess[str]) -> Any:
    """The one JSON document of a command that has succeeded."""
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def ask_status(pipelines: Path) -> Any:
    """The status of a folder alone: the shared ledger also has pipelines of other tests, whose files are elsewhere."""
    here = {"BATCHLEDGER_LOCAL": str(SERVICES.home.local), "BATCHLEDGER_PIPELINES": str(pipelines)}
    found, names = ask("status", **here), {each.stem for each in find_pipeline_files(pipelines)}
    return found | {key: [one for one in found[key] if one["pipeline"] in names] for key in ("pipelines", "incidents")}


def test_a_whole_run_from_nothing_prints_one_json_document_and_nothing_else(workplace: Workplace) -> None:
    """Airflow, Spark and Great Expectations are imported on the way, and have a lot to say."""
    pipeline = workplace.create()
    pipeline.send(4)
    (published,) = read_answer(batchledger_from_nothing("run", pipeline.name, "--json"))
    assert published["quarantined"] == 0
    assert published["state"] == "published"
    pipeline.assert_exact()


@pytest.mark.always
def test_a_pipeline_can_be_fed_planned_run_listed_and_proved_without_airflow(workplace: Workplace) -> None:
    pipeline = workplace.create(limits={"max_records": 60, "target_duration": "30s"})
    assert ask("produce", pipeline.name, "--records", "100", "--partitions", "2")["sent"] == 100
    planned = ask("plan", pipeline.name)
    assert sum(each["until"] - each["start"] for each in planned["ranges"]) == 60
    assert planned["lag_left_records"] == 40
    reason = "no batch has been timed yet, so the first one is small; limits.max_records is 60"
    assert planned["size"] == {"records": 60, "target_seconds": 30.0, "reason": reason}
    assert ask("plan", pipeline.name) == planned
    published = ask("run", pipeline.name, "--until-caught-up")
    assert [each["state"] for each in published] == ["published", "published"]
    batches = ask("batches", pipeline.name)["batches"]
    assert [(each["batch_id"], each["rows"]) for each in batches] == [
        (published[1]["batch_id"], 40),
        (published[0]["batch_id"], 60),
    ]
    history = ask("batch", str(published[0]["batch_id"]))
    assert [each["unexplained"] for each in history["ranges"]] == [0, 0]
    assert [each["outcome"] for each in history["attempts"]] == ["published"]
    assert {check["outcome"] for check in history["checks"]} == {"passed"}
    assert ask("verify", pipeline.name)["holds"]
    assert ask("run", pipeline.name) == []
    assert ask("run", pipeline.name, "--batch", str(published[0]["batch_id"])) == []


def test_a_finding_of_verify_exits_with_1(workplace: Workplace) -> None:
    pipeline = workplace.create()
    pipeline.send(4)
    ask("run", pipeline.name)
    with psycopg.connect(workplace.dsn) as connection:
        connection.execute(f'delete from "{pipeline.name}_target" where _partition = 1 and _offset = 0')  # noqa: S608
    done = batchledger("verify", pipeline.name)
    assert done.returncode == 1
    assert "the ledger accepted 2 rows, the target holds 1" in " ".join(done.stdout.split())


def test_a_blocked_batch_exits_with_3_and_says_what_to_do(workplace: Workplace) -> None:
    pipeline = workplace.create(partitions=1)
    pipeline.send_in_transaction([b"{}"], partition=0, commit=True)
    pipeline.send(1, partitions=1)
    for _ in range(2):
        done = batchledger("run", pipeline.name)
        assert done.returncode == 3
        assert "no_unexplained_holes" in done.stderr
        assert f"batchledger run {pipeline.name} --batch" in done.stderr


def test_usage_and_configuration_errors_exit_with_2(workplace: Workplace) -> None:
    assert batchledger("plan", "no_such_pipeline").returncode == 2
    assert batchledger("batch", "999999999").returncode == 2
    assert batchledger("plan").returncode == 2


def test_a_failure_is_one_message_without_a_trace(workplace: Workplace) -> None:
    done = batchledger_from_nothing("plan", "no_such_pipeline")
    assert done.returncode == 2
    assert "There is no pipeline 'no_such_pipeline'" in done.stderr
    assert "Traceback" not in done.stderr + done.stdout
    assert done.stdout == ""


def test_a_loss_stops_the_pipeline_until_a_person_accepts_exactly_what_the_error_named(workplace: Workplace) -> None:
    """S26, S37, S38: the command is taken from the message, and the loss stays visible."""
    pipeline = workplace.create()
    pipeline.send(20)
    ask("run", pipeline.name)
    pipeline.send(40)
    delete_records(workplace.kafka_options, pipeline.name, partition=1, before_offset=25)
    refused = batchledger("run", pipeline.name)
    assert refused.returncode == 3
    lost = f"{pipeline.name}[1] 10..25"
    assert f'accept-loss {pipeline.name} "{lost}" --reason WHY' in refused.stderr
    too_much = batchledger("accept-loss", pipeline.name, f"{pipeline.name}[1] 10..26", "--reason", "no")
    assert too_much.returncode == 2
    assert f"Lost: {lost}" in too_much.stderr
    accepted = ask("accept-loss", pipeline.name, lost, "--reason", "the disk was full")
    ask("run", pipeline.name, "--until-caught-up")
    history = ask("batch", str(accepted["batch_id"]))
    assert [(each["kind"], each["reason"]) for each in history["decisions"]] == [("accept-loss", "the disk was full")]
    assert [(each["accepted_loss"], each["accepted"]) for each in history["ranges"]] == [(15, 0)]
    assert ask("verify", pipeline.name)["holds"]
    assert pipeline.count_target_rows() == 20 + 40 - 15
    shown = batchledger("batch", str(accepted["batch_id"]))
    assert "accept-loss by" in shown.stdout
    assert "the disk was full" in shown.stdout


def test_a_range_that_cannot_be_read_is_a_usage_error(workplace: Workplace) -> None:
    done = batchledger("accept-loss", workplace.create().name, "orders 10-25", "--reason", "typo")
    assert done.returncode == 2
    assert "topic[partition] start..until" in " ".join(done.stderr.split())


def test_plan_and_status_tell_what_threatens_the_unread_records(workplace: Workplace, tmp_path: Path) -> None:
    """An open transaction, and the moment from which retention may delete the oldest unread record."""
    pipeline = workplace.create(partitions=1, topic_config={"retention.ms": "864000000"})
    pipeline.send(5, partitions=1)
    producer = Producer({**workplace.kafka_options, "transactional.id": uuid.uuid4().hex})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(pipeline.name, value=b"{}", partition=0)
    producer.flush(30)
    pipeline.send(2, partitions=1)
    threats = ask("plan", pipeline.name)["threats"]
    assert threats["unread_records"] == 5
    assert threats["expires_at"] > threats["oldest_unread_at"]
    (transaction,) = threats["open_transactions"]
    assert (transaction["partition"], transaction["held_back_records"]) == (f"{pipeline.name}[0]", 3)
    assert not transaction["is_stuck"]
    shown = " ".join(batchledger("plan", pipeline.name).stdout.split())
    assert f"{pipeline.name}[0]: an open transaction holds back 3 offsets" in shown
    assert f"{pipeline.name}[0]: the oldest unread record may expire in 9 d 23 h" in shown
    (tmp_path / pipeline.path.name).write_text(pipeline.path.read_text())
    here = {"BATCHLEDGER_LOCAL": str(SERVICES.home.local), "BATCHLEDGER_PIPELINES": str(tmp_path)}
    (found,) = ask_status(tmp_path)["pipelines"]
    assert (found["pipeline"], found["state"]) == (pipeline.name, "unread records")
    assert found["threats"]["unread_records"] == 5
    assert "holds back 3 offsets" in " ".join(batchledger("status", **here).stdout.split())
    producer.abort_transaction(30)


def test_status_shows_a_pipeline_whose_stage_step_fails_with_its_error(workplace: Workplace, tmp_path: Path) -> None:
    pipeline = workplace.create(transform="tests.transforms:absent")
    pipeline.send(5)
    assert batchledger("run", pipeline.name).returncode != 0
    (tmp_path / pipeline.path.name).write_text(pipeline.path.read_text())
    here = {"BATCHLEDGER_LOCAL": str(SERVICES.home.local), "BATCHLEDGER_PIPELINES": str(tmp_path)}
    (found,) = ask_status(tmp_path)["pipelines"]
    assert (found["state"], found["threats"]["unread_records"]) == ("failing", 5)
    assert f"of {pipeline.name}, stage step: Transform 'tests.transforms:absent' cannot be loaded" in found["detail"]
    shown = " ".join(batchledger("status", **here).stdout.split())
    assert "failing" in shown
    assert "cannot be loaded" in shown
