"""Why something is not done to a batch, in the words that people read."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from batchledger.model import refusals
from batchledger.model.batch import Attempt, Batch, BatchState, Lane, Target
from batchledger.model.errors import BatchledgerError
from batchledger.model.offsets import OffsetRange, TopicPartition

FLIGHTS_3, FLIGHTS_4 = TopicPartition("flights", 3), TopicPartition("flights", 4)
BATCH = Batch(
    17,
    "flights",
    Lane.LIVE,
    BatchState.PUBLISHED,
    2,
    "run-2",
    (OffsetRange(FLIGHTS_3, 1200, 1500),),
    0,
    datetime(2026, 11, 21, tzinfo=UTC),
)
STALE = Attempt(BATCH, 1, "run-1")
BEFORE = Target("public.flights", "16412")


@pytest.mark.parametrize(
    ("refusal", "said"),
    [
        (
            refusals.fenced_by(BATCH, STALE),
            "Attempt 2 of run run-2 has taken the batch over and has it published.",
        ),
        (
            refusals.fenced_by(replace(BATCH, state=BatchState.DISCARDED), STALE),
            "batch 17 of flights was discarded by a person's decision. Run run-1 changes nothing.",
        ),
        (
            refusals.closed(BATCH, "run-3"),
            "Attempt 2 of run run-2 has it published.",
        ),
        (
            refusals.published_already(replace(BATCH, ranges=(*BATCH.ranges, OffsetRange(FLIGHTS_4, 0, 5)))),
            'batchledger replay flights --range "flights[3] 1200..1500" --range "flights[4] 0..5" --reason WHY',
        ),
        (
            refusals.position_conflict(BATCH, {FLIGHTS_3: 1300}),
            "flights[3]: expected 1200, found 1300\nSee which run or decision has moved the position: ",
        ),
        (
            refusals.position_conflict(BATCH, {FLIGHTS_3: 900}),
            "flights[3]: expected 1200, found 900\nAn earlier batch is published first",
        ),
        (
            refusals.plan_overtaken("flights", BATCH.ranges, {FLIGHTS_3: 1300}),
            "another run has moved it.\nflights[3]: expected 1200, found 1300",
        ),
        (
            refusals.outcome_pending(replace(BATCH, state=BatchState.COMMITTING)),
            "Attempt 2 of run run-2 has begun to commit, and has not confirmed it yet.",
        ),
        (
            refusals.target_changed("flights", BEFORE, "public.flights", "16500"),
            "ipeline flights published to public.flights (id 16412) before; public.flights is another one (id 16500).",
        ),
        (
            refusals.target_changed("flights", BEFORE, "public.flights", None),
            "it was dropped or renamed.\nBring it back.",
        ),
        (
            refusals.target_owned("flights", "public.flights", "flights_old"),
            "flights_old has published to it.",
        ),
    ],
)
def test_refusal_says_who_was_faster_or_what_stands_in_the_way(refusal: BatchledgerError, said: str) -> None:
    assert said in str(refusal)
