"""Pipelines that know their records by a key, from the file to the target, on real services."""

import json
from collections import Counter

import pytest

from batchledger import run_batch
from batchledger.wiring import verify_pipeline
from tests.fakes.crash import PUBLISHING, CrashOnce, SimulatedCrashError
from tests.integration.test_cli import ask, batchledger
from tests.support import Workplace


def test_message_ids_that_come_again_are_dropped_and_listed_across_batches_and_crashes(workplace: Workplace) -> None:
    pipeline = workplace.create(
        dedupe={"key": ["message_id"], "remember": "30d"}, transform="tests.transforms:keep_even"
    )
    pipeline.send(10)
    run_batch.run_once(pipeline.platform(), "first")
    again = [json.dumps({"message_id": each, "number": 0}).encode() for each in (*pipeline.sent[:3], "new", "new")]
    pipeline.send_raw((0, value) for value in again)
    for point in PUBLISHING[pipeline.config.delivery]:
        with pytest.raises(SimulatedCrashError):
            run_batch.run_once(pipeline.platform(CrashOnce(point)), "dies while publishing")
    batch = run_batch.run_once(pipeline.platform(), "second")
    assert batch is not None
    expected = Counter([*pipeline.sent[::2], pipeline.sent[1], "new"])
    assert Counter(each for (each,) in pipeline.query("select message_id from {target}")) == expected
    assert verify_pipeline(pipeline.config).holds
    history = ask("batch", str(batch.batch_id))
    assert [(each["accepted"], each["duplicates"], each["unexplained"]) for each in history["ranges"]] == [(2, 3, 0)]
    pairs = [(each["offset"], each["first_partition"], each["first_offset"]) for each in history["duplicates"]]
    assert pairs == [(5, 0, 0), (7, 0, 1), (9, 0, 8)]
    shown = batchledger("batch", str(batch.batch_id)).stdout
    assert f"{pipeline.name}[0]@9" in shown
    assert "Duplicates, 3 of 3" in shown
