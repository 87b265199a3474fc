"""Doing it again from the command line, on real services: by time, by offsets, and what is refused."""

from datetime import UTC, datetime, timedelta

from tests.integration.test_cli import ask, batchledger
from tests.support import Workplace


def test_a_replay_by_offsets_replaces_exactly_these_rows_and_says_whose_they_were(workplace: Workplace) -> None:
    pipeline = workplace.create()
    pipeline.send(20)
    (first,) = ask("run", pipeline.name)
    refused = batchledger("replay", pipeline.name, "--range", f"{pipeline.name}[0] 2..5")
    assert refused.returncode == 2
    assert "--reason" in refused.stderr
    bounds = ("--from", f"{pipeline.name}[1]@3", "--until", f"{pipeline.name}[1]@7")
    one = ask("replay", pipeline.name, *bounds, "--reason", "to see it")
    assert [(each["replaced_batch_id"], each["start"], each["rows"]) for each in one["replaced"]] == [
        (first["batch_id"], 3, 4)
    ]
    ranges = ("--range", f"{pipeline.name}[0] 2..5", "--range", f"{pipeline.name}[1] 0..4")
    other = ask("replay", pipeline.name, *ranges, "--reason", "and again")
    assert sum(each["rows"] for each in other["replaced"]) == 3 + 4
    assert {each["replaced_batch_id"] for each in other["replaced"]} == {first["batch_id"], one["batch_id"]}
    pipeline.assert_exact()
    shown = batchledger("batch", str(first["batch_id"])).stdout
    assert "Replaced by" in shown
    assert "to see it" in batchledger("batch", str(one["batch_id"])).stdout
    assert [each["lane"] for each in ask("batches", pipeline.name)] == ["replay", "replay", "live"]


def test_a_replay_of_a_time_in_which_nothing_was_written_is_a_success(workplace: Workplace) -> None:
    pipeline = workplace.create()
    pipeline.send(4)
    ask("run", pipeline.name)
    now = datetime.now(UTC)
    window = ("--from", (now - timedelta(hours=1)).isoformat(), "--until", (now + timedelta(hours=1)).isoformat())
    assert len(ask("replay", pipeline.name, *window, "--reason", "all of it")["replaced"]) == 2
    empty = ask("replay", pipeline.name, "--from", "2100-01-01", "--until", "2100-01-02", "--reason", "none")
    assert empty["batch_id"] is None
    pipeline.assert_exact()
    for wrong in (("--from", "yesterday", "--until", "2100-01-01"), ("--from", "2100-01-01"), ()):
        assert batchledger("replay", pipeline.name, *wrong, "--reason", "typo").returncode == 2
