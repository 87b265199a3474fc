"""A new run each second, into three sinks, while a batch takes longer: each batch is published by its first attempt.

``STORM_SECONDS=60 pytest -s tests/faults/test_storm.py`` is the storm of a minute, with its figures.
"""

import json
import logging
import os
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from threading import Event
from typing import Any

from batchledger.ledger.presence import PostgresPresences
from batchledger.lifecycle import run_batch
from batchledger.model.presence import Presence
from tests.faults.run_and_die import wait_until_left_by_the_dead
from tests.forked import start_command
from tests.support import TestPipeline, Workplace, wait_until

logger = logging.getLogger(__name__)

SECONDS = int(os.environ.get("STORM_SECONDS", "10"))
SINKS = ("table", "topic", "lake")
RECORDS_A_SECOND = 40
END_SECONDS = 300


@dataclass(frozen=True)
class Started:
    """One ``batchledger run`` of the storm."""

    process: ForkServerProcess
    out: Path
    err: Path

    @property
    def answer(self) -> Sequence[Mapping[str, Any]]:
        """What it printed."""
        found: Sequence[Mapping[str, Any]] = json.loads(self.out.read_text())
        return found


@dataclass
class Storm:
    """What has happened to one pipeline: which runs were started, and which batch had an owner when all were killed."""

    pipeline: TestPipeline
    folder: Path
    started: list[Started] = field(default_factory=list)
    killed: set[int] = field(default_factory=set)
    killed_batch: int | None = None
    killed_run: str | None = None
    killed_at: datetime | None = None
    started_before_kill: int = 0

    def start(self) -> None:
        """Start one more run."""
        out, err = (self.folder / f"{self.pipeline.name}-{len(self.started)}.{kind}" for kind in ("out", "err"))
        process = start_command(("run", self.pipeline.name, "--json"), os.environ, out, err)
        self.started.append(Started(process, out, err))

    def find_presence(self) -> Presence | None:
        """Who is at work on the open batch, if that is a living process that has opened an attempt of it."""
        found = self.pipeline.platform().ledger.find_open_batch(self.pipeline.name)
        if found is None or found.attempt == 0:
            return None
        presence = PostgresPresences(self.pipeline.workplace.dsn).find(found.batch_id)
        return presence if presence and presence.is_held else None

    def kill_all(self) -> None:
        """SIGKILL to every run that is alive, while one of them is at work on a batch."""
        wait_until(self._is_at_work)
        for number, each in enumerate(self.started):
            if each.process.is_alive():
                self.killed.add(number)
                each.process.kill()
        self.killed_at, self.started_before_kill = datetime.now(UTC), len(self.started)
        wait_until_left_by_the_dead(self.pipeline.name)

    def _is_at_work(self) -> bool:
        """Whether a run is at work on a batch, which is remembered; the storm goes on until one is."""
        if not any(each.process.is_alive() for each in self.started):
            self.pipeline.send(RECORDS_A_SECOND)
            self.start()
        presence = self.find_presence()
        if presence is not None:
            self.killed_batch, self.killed_run = presence.batch_id, presence.run
        return presence is not None

    def wait_for_all(self) -> None:
        """Return when every run that was started has ended."""
        for each in self.started:
            each.process.join(END_SECONDS)
            assert each.process.exitcode is not None, each.err.read_text()

    def list_left_to_the_dead(self) -> list[Started]:
        """The runs that left the batch to the run that was killed before they started."""
        after = [
            each for each in self.started[self.started_before_kill :] if each.process.exitcode == 0 and each.answer
        ]
        return [
            each for each in after if each.answer[0]["at_work"] and each.answer[0]["at_work"]["run"] == self.killed_run
        ]

    @property
    def ended(self) -> list[Started]:
        """Those that were not killed."""
        return [each for number, each in enumerate(self.started) if number not in self.killed]

    def list_batches(self) -> list[tuple[int, int, str]]:
        """Its batches, with the number of attempts and the state of each."""
        rows = self.pipeline.query(
            "select batch_id, attempt, state from batchledger.batch where pipeline = %s order by batch_id",
            self.pipeline.name,
        )
        return [(batch_id, attempt, state) for batch_id, attempt, state in rows]

    def take_over_seconds(self) -> float | None:
        """How long after the kill the next attempt at the batch began; None when it was over by then."""
        rows = self.pipeline.query(
            "select opened_at from batchledger.attempt where batch_id = %s and opened_at > %s order by number limit 1",
            self.killed_batch,
            self.killed_at,
        )
        return (rows[0][0] - self.killed_at).total_seconds() if rows and self.killed_at else None


def raise_storm(storms: Sequence[Storm], killed: Storm) -> None:
    """Start a run of each pipeline every second; in the middle of it all runs of one pipeline are killed."""
    begun = time.monotonic()
    for second in range(SECONDS):
        for storm in storms:
            storm.pipeline.send(RECORDS_A_SECOND)
            storm.start()
        if second == SECONDS // 2:
            killed.kill_all()
        Event().wait(max(0.0, begun + second + 1 - time.monotonic()))
    for storm in storms:
        storm.wait_for_all()
        # If the machine is slow, the killed batch may have been the only one.
        storm.pipeline.send(RECORDS_A_SECOND)
        storm.start()
        storm.wait_for_all()


def judge(storm: Storm) -> None:
    """Each batch was published by its first attempt, the killed one by its second, and no run has failed."""
    exit_codes = Counter(each.process.exitcode for each in storm.ended)
    answers = [each.answer for each in storm.ended if each.process.exitcode == 0]
    left = sum(bool(each and each[0]["at_work"]) for each in answers)
    batches = storm.list_batches()
    logger.info(
        "%s: %d runs, %d killed, exit codes %s, %d left a batch to another run, %d found nothing to do; "
        "%d batches, attempts %s; taken over after %s s",
        storm.pipeline.config.sink.type, len(storm.started), len(storm.killed), dict(exit_codes), left,
        sum(not each for each in answers), len(batches), dict(Counter(attempt for _, attempt, _ in batches)),
        storm.take_over_seconds(),
    )  # fmt: skip
    assert exit_codes.keys() == {0}, [each.err.read_text() for each in storm.ended if each.process.exitcode]
    assert left > 0, "no run has met another one: this was no storm"
    assert {(attempt, state) for batch, attempt, state in batches if batch != storm.killed_batch} == {(1, "published")}
    assert all(attempt <= 2 for _, attempt, _ in batches), "the killed one is taken over once"
    assert not storm.list_left_to_the_dead(), "who comes after the dead takes over"


def test_each_batch_of_a_storm_of_runs_is_published_by_its_first_attempt(workplace: Workplace, tmp_path: Path) -> None:
    """S101: three sinks at once; what came last is taken by one more run, and the targets are exact."""
    storms = [Storm(workplace.create(into=into), tmp_path) for into in SINKS]
    raise_storm(storms, killed=storms[0])
    for storm in storms:
        judge(storm)
        pipeline = storm.pipeline
        while pipeline.find_differences():
            assert run_batch.run_once(pipeline.platform(), "after the storm") is not None
        pipeline.assert_exact()
