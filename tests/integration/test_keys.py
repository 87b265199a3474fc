"""Pipelines that know their records by a key, from the file to the target, on real services."""

import json
from collections import Counter

import pytest

from batchledger.lifecycle import plans, run_batch
from batchledger.model.batch import Decision
from batchledger.model.errors import ConfigurationError
from batchledger.model.offsets import OffsetRange, TopicPartition
from batchledger.planning.replay import Replay
from batchledger.wiring import verify_pipeline
from tests.fakes.crash import CrashOnce, SimulatedCrashError
from tests.integration.test_cli import ask, batchledger
from tests.support import Workplace


def test_message_ids_that_come_again_are_dropped_and_listed_across_batches_and_a_crash(workplace: Workplace) -> None:
    pipeline = workplace.create(
        dedupe={"key": ["message_id"], "remember": "30d"}, transform="tests.transforms:keep_even"
    )
    pipeline.send(10)
    run_batch.run_once(pipeline.platform(), "first")
    again = [json.dumps({"message_id": each, "number": 0}).encode() for each in (*pipeline.sent[:3], "new", "new")]
    pipeline.send_raw((0, value) for value in again)
    with pytest.raises(SimulatedCrashError):
        run_batch.run_once(pipeline.platform(CrashOnce("before_commit")), "dies while publishing")
    batch = run_batch.run_once(pipeline.platform(), "second")
    assert batch is not None
    expected = Counter([*pipeline.sent[::2], pipeline.sent[1], "new"])
    assert Counter(each for (each,) in pipeline.query("select message_id from {target}")) == expected
    assert verify_pipeline(pipeline.config).holds
    history = ask("batch", str(batch.batch_id))
    assert [(each["accepted"], each["duplicates"], each["unexplained"]) for each in history["ranges"]] == [(2, 3, 0)]
    pairs = [(each["offset"], each["first_partition"], each["first_offset"]) for each in history["duplicates"]["first"]]
    assert history["duplicates"]["count"] == 3
    assert pairs == [(5, 0, 0), (7, 0, 1), (9, 0, 8)]
    shown = batchledger("batch", str(batch.batch_id)).stdout
    assert f"{pipeline.name}[0]@9" in shown
    assert "Duplicates, 3 of 3" in shown


@pytest.mark.parametrize("run", ["first", "second"])
def test_at_least_once_with_dedupe_is_effectively_once_and_proved_at_every_moment(
    workplace: Workplace, run: str
) -> None:
    """Killed between its two commits: what is there already is neither a finding nor inserted again."""
    pipeline = workplace.create(
        partitions=1, delivery="at_least_once", dedupe={"key": ["message_id"], "remember": "30d"}
    )
    pipeline.send_raw((0, json.dumps({"message_id": each}).encode()) for each in "abac")
    with pytest.raises(SimulatedCrashError):
        run_batch.run_once(pipeline.platform(CrashOnce("between_commits")), "first")
    assert pipeline.count_target_rows() == 3
    half = verify_pipeline(pipeline.config)
    assert (half.findings, half.batches, half.rows) == ((), 0, 0)
    assert run_batch.run_once(pipeline.platform(), run) is not None
    assert sorted(pipeline.query("select message_id from {target}")) == [("a",), ("b",), ("c",)]
    proved = verify_pipeline(pipeline.config)
    assert (proved.findings, proved.batches, proved.rows) == ((), 1, 3)


def test_rows_of_a_batch_that_was_blocked_between_its_commits_are_found(workplace: Workplace) -> None:
    """A blocked batch is not about to be published, so its rows are not left to the next proof."""
    pipeline = workplace.create(partitions=1, delivery="at_least_once")
    pipeline.send(3, partitions=1)
    with pytest.raises(SimulatedCrashError):
        run_batch.run_once(pipeline.platform(CrashOnce("between_commits")), "first")
    assert verify_pipeline(pipeline.config).holds
    pipeline.query("update batchledger.batch set state = 'blocked' where pipeline = %s returning 1", pipeline.name)
    (finding,) = verify_pipeline(pipeline.config).findings
    assert (finding.invariant, finding.detail) == ("target", "3 rows that no published batch accounts for")


def test_duplicate_that_is_no_longer_listed_is_found(workplace: Workplace) -> None:
    pipeline = workplace.create(partitions=1, dedupe={"key": ["message_id"], "remember": "30d"})
    pipeline.send_raw((0, json.dumps({"message_id": each}).encode()) for each in "aab")
    batch = run_batch.run_once(pipeline.platform(), "run")
    assert batch is not None
    assert verify_pipeline(pipeline.config).holds
    pipeline.query("delete from batchledger.duplicate where batch_id = %s returning 1", batch.batch_id)
    (finding,) = verify_pipeline(pipeline.config).findings
    assert (finding.invariant, finding.where) == ("duplicate", f"batch {batch.batch_id}, {pipeline.name}[0] 0..3")
    assert batchledger("verify", pipeline.name).returncode == 1


def test_backfill_runs_and_a_live_run_that_share_message_ids_do_not_fail_each_other(workplace: Workplace) -> None:
    """All are audited before the first one is published, which makes the audits of the others outdated."""
    pipeline = workplace.create(
        partitions=1, source={"start": "latest"}, dedupe={"key": ["message_id"], "remember": "30d"}
    )
    pipeline.send_raw((0, json.dumps({"message_id": each}).encode()) for each in "abcabc")
    assert plans.plan(pipeline.platform(), "first") is None
    pipeline.send_raw((0, json.dumps({"message_id": each}).encode()) for each in "abd")
    batch_ids = {}
    for run, start, until in (("january", 0, 3), ("february", 3, 6)):
        asked = Replay((OffsetRange(TopicPartition(pipeline.name, 0), start, until),))
        replay = plans.plan_replay(pipeline.platform(), asked, run, Decision("ana", "history"), run)
        assert replay is not None
        batch_ids[run] = replay.batch_id
    live = plans.plan(pipeline.platform(), "live")
    assert live is not None
    batch_ids["live"] = live.batch_id
    for run, batch_id in batch_ids.items():
        run_batch.stage(pipeline.platform(), batch_id, run)
        run_batch.audit(pipeline.platform(), batch_id, run)
    for run, batch_id in batch_ids.items():
        assert run_batch.publish(pipeline.platform(), batch_id, run).attempt == 1
    assert sorted(pipeline.query("select message_id from {target}")) == [("a",), ("b",), ("c",), ("d",)]
    duplicates = {run: ask("batch", str(batch_id))["ranges"][0]["duplicates"] for run, batch_id in batch_ids.items()}
    assert duplicates == {"january": 0, "february": 3, "live": 2}
    assert verify_pipeline(pipeline.config).holds
    assert pipeline.list_staging() == []


FLIGHTS = {
    "source": {"schema": "carrier string, flight int, delay int", "tombstones": "delete"},
    "sink": {"mode": "upsert", "key": ["carrier", "flight"]},
}


def key_of(carrier: str, flight: object) -> bytes:
    return json.dumps({"carrier": carrier, "flight": flight}).encode()


def update(carrier: str, flight: int, delay: int) -> tuple[int, bytes, bytes]:
    value = json.dumps({"carrier": carrier, "flight": flight, "delay": delay}).encode()
    return flight % 2, key_of(carrier, flight), value


def deletion(carrier: str, flight: int) -> tuple[int, bytes, None]:
    return flight % 2, key_of(carrier, flight), None


def test_target_holds_the_newest_state_of_each_key_and_tombstones_delete(workplace: Workplace) -> None:
    pipeline = workplace.create(**FLIGHTS, transform="tests.transforms:mark_late")
    pipeline.send_keyed([update("AA", 1, 5), update("AA", 2, 20), update("DL", 1, 7), update("AA", 1, 30)])
    run_batch.run_once(pipeline.platform(), "first")
    bad_keys = {
        b"not json": "the value is not exactly one JSON object",
        None: "the record has no key",
        b"\xff": "the value is not valid UTF-8",
        key_of("AA", "seven"): "flight (int) cannot hold a string",
        b'{"carrier": "AA"}': "a part of it is null or absent",
        key_of("AA", 2) + b"{}": "the value is not exactly one JSON object",
    }
    pipeline.send_keyed([deletion("DL", 1), update("AA", 2, 3), deletion("UA", 4), deletion("AA", 1)])
    pipeline.send_keyed((0, key, None) for key in bad_keys)
    with pytest.raises(SimulatedCrashError):
        run_batch.run_once(pipeline.platform(CrashOnce("before_commit")), "dies while publishing")
    batch = run_batch.run_once(pipeline.platform(), "second")
    assert batch is not None
    found = pipeline.query("select carrier, flight, delay, is_late from {target}")
    assert found == [("AA", 2, 3, False)]
    assert pipeline.query("select count(*) from batchledger.deleted_key where pipeline = %s", pipeline.name) == [(3,)]
    errors = pipeline.query(
        'select error from batchledger.quarantine where batch_id = %s order by "offset"', batch.batch_id
    )
    what = "the record has no value, and its key does not decode as carrier, flight"
    assert errors == [(f"{what}: {why}",) for why in bad_keys.values()]
    assert verify_pipeline(pipeline.config).holds
    assert "Not proved: that no row is missing" in " ".join(batchledger("verify", pipeline.name).stdout.split())


@pytest.mark.parametrize(
    ("type_", "good", "bad"),
    [("string", b"A 1", b"a\x00b"), ("int", b"42", b"4x"), ("date", b"2026-11-21", b"-9999-01-01")],
)
def test_key_of_one_column_is_the_text_of_the_record_key(
    workplace: Workplace, type_: str, good: bytes, bad: bytes
) -> None:
    pipeline = workplace.create(
        partitions=1,
        source={"schema": f"id {type_}, delay int", "tombstones": "delete"},
        sink={"mode": "upsert", "key": ["id"]},
    )
    value = json.dumps({"id": int(good) if type_ == "int" else good.decode(), "delay": 1}).encode()
    pipeline.send_keyed([(0, b"", value)])
    run_batch.run_once(pipeline.platform(), "first")
    assert pipeline.count_target_rows() == 1
    pipeline.send_keyed([(0, good, None), (0, bad, None)])
    batch = run_batch.run_once(pipeline.platform(), "second")
    assert batch is not None
    assert pipeline.count_target_rows() == 0
    assert pipeline.query("select key from batchledger.quarantine where batch_id = %s", batch.batch_id) == [(bad,)]


@pytest.mark.parametrize(("policy", "rows", "skipped"), [("keep", [(None,), ("a",)], 0), ("skip", [("a",)], 1)])
def test_tombstones_are_kept_or_skipped_as_the_file_says(
    workplace: Workplace, policy: str, rows: list[tuple[str | None]], skipped: int
) -> None:
    """S46."""
    pipeline = workplace.create(partitions=1, source={"tombstones": policy})
    pipeline.send_keyed([(0, b"k", None), (0, b"k", b'{"message_id": "a"}')])
    batch = run_batch.run_once(pipeline.platform(), "run")
    assert batch is not None
    assert pipeline.query("select message_id from {target} order by _offset") == rows
    (balance,) = ask("batch", str(batch.batch_id))["ranges"]
    assert (balance["accepted"], balance["tombstones"], balance["unexplained"]) == (len(rows), skipped, 0)
    assert verify_pipeline(pipeline.config).holds


def test_transform_that_loses_the_deletions_is_refused(workplace: Workplace) -> None:
    pipeline = workplace.create(**FLIGHTS, transform="tests.transforms:forget_deletions")
    pipeline.send_keyed([deletion("AA", 1)])
    with pytest.raises(ConfigurationError, match="dropped the provenance columns _deleted"):
        run_batch.run_once(pipeline.platform(), "run")
