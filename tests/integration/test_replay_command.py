"""Doing it again from the command line, on real services: by time, by offsets, from quarantine, and what is refused."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import yaml

from tests.integration.test_cli import ask, batchledger
from tests.support import TestPipeline, Workplace, delete_records


def change(pipeline: TestPipeline, **changes: Any) -> None:
    """Write the pipeline file anew; what is given for ``source`` is added to what it says of it."""
    content = yaml.safe_load(pipeline.path.read_text())
    source = {**content["source"], **changes.pop("source", {})}
    pipeline.path.write_text(yaml.safe_dump({**content, **changes, "source": source}))


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
    assert [each["lane"] for each in ask("batches", pipeline.name)["batches"]] == ["replay", "replay", "live"]


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


def test_a_dry_run_tells_what_the_replay_then_does(workplace: Workplace) -> None:
    """The transform was corrected: a record goes, another one changes, the rest stays."""
    pipeline = workplace.create()
    pipeline.send(10)
    (first,) = ask("run", pipeline.name)
    change(pipeline, transform="tests.transforms:corrected")
    ranges = ("--range", f"{pipeline.name}[0] 0..5")
    before = pipeline.query("select * from {target} order by _partition, _offset")
    said = ask("replay", pipeline.name, *ranges, "--dry-run")
    assert {name: said["comparison"][name] for name in ("added", "removed", "changed", "unchanged")} == {
        "added": 0, "removed": 1, "changed": 1, "unchanged": 3,
    }  # fmt: skip
    assert said["comparison"]["examples"] == [{"record": f"{pipeline.name}[0]@3", "columns": ["amount"]}]
    assert [(each["batch_id"], each["rows"]) for each in said["replaced"]] == [(first["batch_id"], 5)]
    kept = ask("batch", str(said["batch_id"]))["dry_run"]
    assert kept == {name: said[name] for name in ("expired", "replaced", "comparison", "objections", "notes")}
    shown = " ".join(batchledger("replay", pipeline.name, *ranges, "--dry-run").stdout.split())
    assert "0 added, 1 removed, 1 changed, 3 unchanged" in shown
    assert pipeline.query("select * from {target} order by _partition, _offset") == before
    assert pipeline.list_staging() == []
    ask("replay", pipeline.name, *ranges, "--reason", "corrected")
    assert pipeline.query("select count(*), sum(amount) from {target} where _partition = 0") == [(4, 0 + 0.5 + 0 + 2)]
    listed = batchledger("batches", pipeline.name).stdout
    assert "dry run" in listed
    assert "corrected" in listed
    assert ask("verify", pipeline.name)["holds"]


def test_records_in_quarantine_are_listed_tried_again_with_another_schema_and_dropped(workplace: Workplace) -> None:
    """Kafka need not have them any more: it has removed them here."""
    pipeline = workplace.create(partitions=1, source={"schema": "message_id string, number int"})
    good = [json.dumps({"message_id": f"m{number}", "number": number}).encode() for number in range(3)]
    large, broken = b'{"message_id": "large", "number": 3000000000}', b"\x1b[31mnot json"
    pipeline.send_raw(
        [(0, value) for value in (good[0], large, good[1], broken, large, good[2])], headers=[("h", b"\xff")]
    )
    (first,) = ask("run", pipeline.name)
    delete_records(workplace.kafka_options, pipeline.name, partition=0, before_offset=6)
    listed = ask("quarantine", "list", pipeline.name)
    assert [(each["offset"], each["batch_id"]) for each in listed["records"]] == [
        (offset, first["batch_id"]) for offset in (1, 3, 4)
    ]
    assert all("value" not in each for each in listed["records"])
    assert "31mnot" not in batchledger("quarantine", "list", pipeline.name).stdout
    shown = batchledger("quarantine", "list", pipeline.name, "--show-payload").stdout
    assert r"\x1b[31mnot" in shown
    assert "\x1b[31m" not in shown
    (look,) = ask("looks", pipeline.name)
    assert (look["records"], look["ranges"]) == (3, [f"{pipeline.name}[0] 1..5"])
    change(pipeline, source={"schema": "message_id string, number bigint"})
    with psycopg.connect(workplace.dsn) as connection:
        connection.execute(f'alter table "{pipeline.name}_target" alter column number type bigint')
    said = ask("quarantine", "replay", pipeline.name, "--all", "--dry-run")
    assert (said["comparison"]["added"], said["objections"]) == (2, [])
    assert len(ask("quarantine", "list", pipeline.name)["records"]) == 3
    (done,) = ask("quarantine", "replay", pipeline.name, "--all", "--reason", "numbers are larger now")
    assert (done["published"], done["still_quarantined"]) == (2, 1)
    assert pipeline.query("select _offset, number from {target} where number > 5 order by 1") == [
        (1, 3_000_000_000),
        (4, 3_000_000_000),
    ]
    times = "select count(*) from {target} where _timestamp between now() - interval '1 hour' and now()"
    assert pipeline.query(times) == [(5,)]
    headers = "select headers::text from batchledger.quarantine where pipeline = %s"
    assert json.loads(pipeline.query(headers, pipeline.name)[0][0]) == [{"key": "h", "value": "/w=="}]
    (left,) = ask("quarantine", "list", pipeline.name)["records"]
    assert (left["offset"], left["batch_id"]) == (3, done["batch_id"])
    assert ask("verify", pipeline.name)["holds"]
    place = f"{pipeline.name}[0] 3..4"
    assert ask("quarantine", "drop", pipeline.name, place, "--dry-run")["dropped"] == 1
    assert batchledger("quarantine", "drop", pipeline.name, place).returncode == 2
    assert ask("quarantine", "drop", pipeline.name, place, "--reason", "never to be read")["dropped"] == 1
    assert ask("quarantine", "drop", pipeline.name, "--all", "--reason", "again")["dropped"] == 0
    verified = ask("verify", pipeline.name)
    assert (verified["holds"], verified["quarantined"]) == (True, 0)
