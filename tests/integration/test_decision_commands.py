"""What a person decides on the command line, on real services: shown first, recorded, harmless to repeat."""

import os
import pwd
import socket
from pathlib import Path

from tests.integration.test_cli import ask, ask_status, batchledger
from tests.pages import block
from tests.runner import RUNNER
from tests.support import TestPipeline, Workplace, delete_records

WHY = ("--reason", "the transform was wrong")


def read_rows(pipeline: TestPipeline) -> list[tuple[object, ...]]:
    return pipeline.query("select message_id, number, amount, _partition, _offset from {target} order by 1, 4, 5")


def test_a_rewind_is_shown_first_then_rebuilds_the_identical_table_and_is_listed(workplace: Workplace) -> None:
    pipeline = workplace.create(limits={"max_records": 12})
    pipeline.send(20)
    ask("run", pipeline.name, "--until-caught-up")
    before = read_rows(pipeline)
    name = pipeline.name
    shown = ask("rewind", name, "--to", "earliest", "--dry-run", *WHY)
    assert (shown["dry_run"], shown["before"]["next_offset"]) == (True, {f"{name}[0]": 10, f"{name}[1]": 10})
    assert ask("run", name) == []
    assert "Dry run: nothing was changed." in batchledger("rewind", name, "--to", "earliest", "--dry-run", *WHY).stdout
    assert ask("rewind", name, "--to", "earliest", *WHY)["after"]["epoch"] == 1
    assert not ask("rewind", name, "--to", "earliest", *WHY)["is_new"]
    assert read_rows(pipeline) == before
    ask("run", name)
    pipeline.assert_exact()
    ask("run", name, "--until-caught-up")
    assert read_rows(pipeline) == before
    pipeline.assert_exact()
    assert ask("rewind", name, "--to", "2020-01-01", "--truncate", *WHY)["before"]["rows"] == 20
    assert pipeline.count_target_rows() == 0
    assert ask("verify", name)["holds"]
    ask("run", name, "--until-caught-up")
    assert read_rows(pipeline) == before
    pipeline.assert_exact()
    decisions = ask("batches", name)["decisions"]
    assert [(each["kind"], each["reason"], each["after"]["epoch"]) for each in decisions] == [
        ("rewind", "the transform was wrong", 2),
        ("rewind", "the transform was wrong", 1),
    ]
    listed = " ".join(batchledger("batches", name).stdout.split())
    assert "the transform was wrong" in listed
    assert "epoch: 0 → 1" in listed


def test_a_rewind_to_named_offsets_goes_backwards_only_and_to_what_is_there(workplace: Workplace) -> None:
    pipeline = workplace.create()
    pipeline.send(20)
    ask("run", pipeline.name)
    delete_records(workplace.kafka_options, pipeline.name, partition=0, before_offset=3)
    for offset, message in ((11, "batchledger skip"), (2, f"{pipeline.name}[0] from 3 on")):
        refused = batchledger("rewind", pipeline.name, "--to", f"{pipeline.name}[0]@{offset}", *WHY)
        assert refused.returncode == 2
        assert message in refused.stderr
    refused = batchledger("rewind", pipeline.name, "--to", "earliest", "--truncate", *WHY)
    assert refused.returncode == 3
    assert "--allow-expired" in refused.stderr
    to = [word for number in (0, 1) for word in ("--to", f"{pipeline.name}[{number}]@{5 + number}")]
    ask("rewind", pipeline.name, *to, *WHY)
    ask("run", pipeline.name)
    pipeline.assert_exact()
    for wrong in (("--to", "yesterday"), ("--to", "earliest", "--to", "2020-01-01"), ()):
        assert batchledger("rewind", pipeline.name, *wrong, *WHY).returncode == 2


def test_an_erasure_is_shown_first_then_deletes_the_rows_which_a_rewind_does_not_bring_back(
    workplace: Workplace,
) -> None:
    pipeline = workplace.create()
    pipeline.send(20)
    ask("run", pipeline.name)
    before, name = read_rows(pipeline), pipeline.name
    gone = str(before[0][0])
    key = ("--key", f"message_id={gone}")
    shown = ask("erase", name, *key, "--dry-run", *WHY)
    assert (shown["dry_run"], shown["before"]["rows"], pipeline.count_target_rows()) == (True, 1, 20)
    telling = batchledger("erase", name, *key, "--reason", f"{gone} has asked")
    assert (telling.returncode, pipeline.count_target_rows()) == (2, 20)
    assert batchledger("erase", name, "--key", "message_id", *WHY).returncode == 2
    erased = ask("erase", name, *key, *WHY)
    assert (erased["kind"], erased["before"]["rows"], erased["after"]["rows"]) == ("erase", 1, 0)
    assert gone not in batchledger("batches", name).stdout
    assert not ask("erase", name, *key, *WHY)["is_new"]
    assert read_rows(pipeline) == before[1:]
    ask("rewind", name, "--to", "earliest", *WHY)
    ask("run", name)
    assert read_rows(pipeline) == before[1:]
    assert "19 rows, 0 quarantined, 1 erased." in " ".join(batchledger("verify", name).stdout.split())


def test_a_blocked_batch_is_taken_again_or_discarded_or_accepted(workplace: Workplace) -> None:
    """One of two offsets is the marker of a transaction, which the pipeline does not declare."""
    pipeline = workplace.create(partitions=1)
    pipeline.send_in_transaction([b"{}"], partition=0, commit=True)
    assert batchledger("run", pipeline.name).returncode == 3
    blocked = str(ask("batches", pipeline.name)["batches"][0]["batch_id"])
    assert batchledger("run", pipeline.name, "--batch", blocked, "--reason", "perhaps now").returncode == 3
    assert ask("discard", blocked, "--dry-run", *WHY)["is_new"]
    assert ask("discard", blocked, *WHY)["after"] == {"state": "discarded"}
    assert not ask("discard", blocked, *WHY)["is_new"]
    assert [each["kind"] for each in ask("batch", blocked)["decisions"]] == ["retry", "discard"]
    assert batchledger("run", pipeline.name).returncode == 3
    again = str(ask("batches", pipeline.name)["batches"][0]["batch_id"])
    range_ = f"{pipeline.name}[0] 0..2"
    assert ask("accept", again, "--dry-run", *WHY)["after"]["accepted_loss"] == {range_: 1}
    assert ask("batch", again)["state"] == "blocked"
    assert ask("accept", again, *WHY)["is_new"]
    assert not ask("accept", again, *WHY)["is_new"]
    assert "decided already" in batchledger("accept", again, *WHY).stdout
    assert ask("verify", pipeline.name)["accepted_loss"] == 1
    assert pipeline.count_target_rows() == 1
    refused = batchledger("discard", again, *WHY)
    assert refused.returncode == 2
    assert "is published" in refused.stderr


def test_a_skip_goes_on_behind_what_it_names(workplace: Workplace) -> None:
    pipeline = workplace.create(partitions=1)
    pipeline.send(10, partitions=1)
    skipped = f"{pipeline.name}[0] 0..4"
    assert batchledger("skip", pipeline.name, f"{pipeline.name}[0] 0..11", *WHY).returncode == 2
    ask("run", pipeline.name)
    pipeline.send(10, partitions=1)
    assert batchledger("skip", pipeline.name, skipped, *WHY).returncode == 2
    skipped = f"{pipeline.name}[0] 10..14"
    assert ask("skip", pipeline.name, skipped, "--dry-run", *WHY)["dry_run"]
    decided = ask("skip", pipeline.name, skipped, *WHY)
    assert ask("skip", pipeline.name, skipped, *WHY)["batch_id"] == decided["batch_id"]
    ask("run", pipeline.name)
    assert pipeline.count_target_rows() == 16
    assert ask("verify", pipeline.name)["accepted_loss"] == 4


def test_a_paused_pipeline_plans_nothing_until_it_is_resumed(workplace: Workplace, tmp_path: Path) -> None:
    pipeline = workplace.create()
    pipeline.send(4)
    assert ask("pause", pipeline.name, "--dry-run", *WHY)["after"] == {"paused": True}
    paused = ask("pause", pipeline.name, *WHY, LOGNAME="ceo", USER="ceo")
    assert (paused["is_new"], paused["decided_by"]) == (True, pwd.getpwuid(os.getuid()).pw_name)
    assert (paused["uid"], paused["host"], paused["database_role"]) == (os.getuid(), socket.gethostname(), RUNNER)
    assert not ask("pause", pipeline.name, "--reason", "again")["is_new"]
    refused = batchledger("run", pipeline.name)
    assert refused.returncode == 3
    assert "the transform was wrong" in refused.stderr
    assert f"(uid {os.getuid()} @{socket.gethostname()}, role {RUNNER})" in refused.stderr
    (tmp_path / pipeline.path.name).write_text(pipeline.path.read_text())
    (found,) = ask_status(tmp_path)["pipelines"]
    assert found["state"] == "paused"
    assert "the transform was wrong" in found["detail"]
    assert ask("resume", pipeline.name, *WHY)["is_new"]
    assert ask("resume", pipeline.name, *WHY)["is_new"] is False
    ask("run", pipeline.name)
    pipeline.assert_exact()
    assert [each["kind"] for each in ask("batches", pipeline.name)["decisions"]] == ["resume", "pause"]


def test_pipeline_whose_file_is_gone_is_in_sight_until_a_person_retires_it(workplace: Workplace) -> None:
    pipeline, batch_id = block(workplace)
    name, content = pipeline.name, pipeline.path.read_text()
    ask("alerts", "send", name)
    pipeline.path.unlink()
    status = ask("status")
    (found,) = [each for each in status["pipelines"] if each["pipeline"] == name]
    assert found["state"] == "file gone"
    assert f"open is batch {batch_id} (blocked)" in found["detail"]
    assert f"batchledger retire {name} --reason WHY" in found["detail"]
    kinds = [each["kind"] for each in status["incidents"] if each["pipeline"] == name]
    assert "blocked" in kinds
    measured = batchledger("metrics").stdout
    assert f'batchledger_pipeline_state{{pipeline="{name}",state="file gone"}} 1.0' in measured
    assert f'batchledger_open_batches{{pipeline="{name}",state="blocked"}} 1.0' in measured
    assert f'batchledger_open_incidents{{kind="blocked",pipeline="{name}"}} 1.0' in measured
    refused = batchledger("retire", name, *WHY)
    assert (refused.returncode, f"--discard-batch {batch_id}" in refused.stderr) == (2, True)
    assert ask("retire", name, "--discard-batch", str(batch_id), "--dry-run", *WHY)["after"]["retired"]
    retired = ask("retire", name, "--discard-batch", str(batch_id), *WHY)
    assert (retired["after"], retired["reason"]) == ({"retired": True, "batch": {str(batch_id): "discarded"}}, WHY[1])
    status = ask("status")
    assert name not in {each["pipeline"] for each in (*status["pipelines"], *status["incidents"])}
    listed = ask("batches", name)
    assert [each["kind"] for each in listed["decisions"]] == ["retire", "discard"]
    assert [each["state"] for each in listed["batches"]] == ["discarded"]
    pipeline.path.write_text(content)
    came_back = batchledger("run", name)
    assert (came_back.returncode, f"batchledger resume {name} --reason WHY" in " ".join(came_back.stderr.split())) == (
        3,
        True,
    )
    (found,) = [each for each in ask("status")["pipelines"] if each["pipeline"] == name]
    assert found["state"] == "retired"


def test_retired_pipeline_is_proved_without_its_file_and_says_that_the_target_was_not_compared(
    workplace: Workplace,
) -> None:
    pipeline = workplace.create()
    pipeline.send(6)
    ask("run", pipeline.name)
    content = pipeline.path.read_text()
    pipeline.path.unlink()
    ask("retire", pipeline.name, "--free-target", *WHY)
    proved = ask("verify", pipeline.name)
    assert (proved["holds"], proved["offsets"], proved["not_compared"]) == (True, 6, "the pipeline file is gone")
    shown = " ".join(batchledger("verify", pipeline.name).stdout.split())
    assert "the target was not compared: the pipeline file is gone." in shown
    pipeline.path.write_text(content)
    pipeline.query("delete from {target} returning 1")
    proved = ask("verify", pipeline.name)
    assert (proved["holds"], proved["not_compared"]) == (True, "a person has retired the pipeline, and freed it")
    pipeline.query(
        "update batchledger.batch_range set accepted = accepted - 1, duplicates = duplicates + 1 "
        "where pipeline = %s and accepted > 0 returning 1",
        pipeline.name,
    )
    pipeline.path.unlink()
    broken = batchledger("verify", pipeline.name)
    assert (broken.returncode, "duplicates" in broken.stdout) == (1, True)


def test_name_that_neither_a_file_nor_the_ledger_knows_is_refused(workplace: Workplace) -> None:
    workplace.create()
    for command in (("verify",), ("batches",), ("retire", *WHY)):
        refused = batchledger(command[0], "there_is_none", *command[1:])
        assert (refused.returncode, "There is no pipeline 'there_is_none'" in refused.stderr) == (2, True)
