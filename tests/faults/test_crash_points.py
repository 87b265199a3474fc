"""Every named crash point, killed for real by SIGKILL; afterwards the target is proved record by record."""

import signal
import subprocess
import sys

import pytest

from batchledger import run_batch
from batchledger.batch import BatchState
from batchledger.errors import FencedError
from tests.conftest import ROOT
from tests.support import TestPipeline, Workplace

BEFORE_COMMIT = (
    "plan_stored",
    "attempt_opened",
    "staging_sealed",
    "staged",
    "audited",
    "positions_moved",
    "rows_moved",
    "before_commit",
)
AFTER_COMMIT = ("committed",)


def run_until_killed(pipeline: TestPipeline, point: str) -> None:
    command = [sys.executable, "-m", "tests.faults.run_and_die", pipeline.name, "killed", point]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=240, check=False)
    assert ended.returncode == -signal.SIGKILL, ended.stderr[-2000:]


@pytest.mark.parametrize("point", BEFORE_COMMIT)
def test_killed_before_commit_nothing_is_visible_and_the_next_run_takes_the_same_ranges(
    workplace: Workplace, point: str
) -> None:
    """S83, S86, S89: a new run, under another name, finds the stored plan although more records have come (I5)."""
    pipeline = workplace.create()
    pipeline.send(50)
    run_until_killed(pipeline, point)
    platform = pipeline.platform()
    left = platform.ledger.find_open_batch(pipeline.name)
    assert left is not None
    assert pipeline.count_target_rows() == 0
    assert [each.next_offset for each in platform.ledger.load_positions(pipeline.name)] == [0, 0]
    pipeline.send(30)
    again = run_batch.run_once(platform, "next")
    assert again is not None
    assert (again.batch_id, again.ranges, again.state) == (left.batch_id, left.ranges, BatchState.PUBLISHED)
    run_batch.run_once(platform, "the records that came later")
    pipeline.assert_exact()


@pytest.mark.parametrize("point", AFTER_COMMIT)
def test_killed_after_commit_nothing_is_done_twice(workplace: Workplace, point: str) -> None:
    """S65: the step is repeated by the same run, as Airflow does; it finds its work done and only cleans up."""
    pipeline = workplace.create()
    pipeline.send(50)
    run_until_killed(pipeline, point)
    pipeline.assert_exact()
    platform = pipeline.platform()
    batch_id = pipeline.query("select batch_id from batchledger.batch where pipeline = %s", pipeline.name)[0][0]
    for step in (run_batch.stage, run_batch.audit, run_batch.publish):
        assert step(platform, batch_id, "killed").state is BatchState.PUBLISHED
    with pytest.raises(FencedError, match="attempt 1 of run killed"):
        run_batch.stage(platform, batch_id, "another run")
    assert run_batch.run_once(platform, "next") is None
    pipeline.assert_exact()
    assert pipeline.list_staging() == []


def test_killed_between_stage_and_publish_the_same_run_goes_on_where_it_was(workplace: Workplace) -> None:
    """Airflow retries the task that died, not the whole run: the staged attempt is still good."""
    pipeline = workplace.create()
    pipeline.send(50)
    run_until_killed(pipeline, "staged")
    platform = pipeline.platform()
    left = platform.ledger.find_open_batch(pipeline.name)
    assert left is not None
    run_batch.audit(platform, left.batch_id, "killed")
    published = run_batch.publish(platform, left.batch_id, "killed")
    assert (published.state, published.attempt) == (BatchState.PUBLISHED, 1)
    pipeline.assert_exact()
