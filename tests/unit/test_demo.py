"""What the demo concludes from what it sees; the demo itself runs end to end elsewhere."""

from collections.abc import Callable

import pytest
from rich.console import Console

from batchledger.books.history import BatchHistory, RangeRecord
from batchledger.local import run_progress
from batchledger.local.airflow_api import Run, _find_error
from batchledger.local.demo import add_up_ranges
from batchledger.local.run_progress import Backlog, Observation, follow
from batchledger.model.batch import Batch, BatchState, Lane
from batchledger.model.errors import ServiceUnavailableError

CONSOLE = Console(quiet=True)


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_progress, "POLL_SECONDS", 0)


def test_a_run_that_left_records_behind_is_followed_into_the_next_one() -> None:
    first, second = Run("first", "success"), Run("second", "success")
    look = in_turn(
        saw([Run("first", "running")], 0),
        saw([first, Run("second", "queued")], 60),
        saw([first, Run("second", "running")], 100),
        saw([first, second], 100),
    )
    assert follow(look, CONSOLE) is None
    with pytest.raises(StopIteration):
        look()


def test_a_failed_run_ends_the_following_at_once() -> None:
    failed = Run("first", "failed")
    assert follow(in_turn(saw([failed, Run("second", "running")], 60)), CONSOLE) == failed


def test_records_that_no_run_is_left_for_are_an_error() -> None:
    with pytest.raises(ServiceUnavailableError, match=r"40 .* unread and no run is left"):
        follow(in_turn(saw([Run("first", "success")], 60)), CONSOLE)


def test_standing_still_for_too_long_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_progress, "STALL_SECONDS", 0.05)
    with pytest.raises(ServiceUnavailableError, match=r"40 .* unread and nothing has moved"):
        follow(lambda: saw([Run("first", "running")], 60), CONSOLE)


def test_balances_of_all_batches_add_up_to_one_line_per_partition() -> None:
    histories = [
        history(a_range(0, 10, 25, accepted=15), a_range(1, 0, 5, accepted=5)),
        history(a_range(0, 0, 10, accepted=8, quarantined=2)),
    ]
    assert add_up_ranges(histories) == [
        a_range(0, 0, 25, accepted=23, quarantined=2),
        a_range(1, 0, 5, accepted=5),
    ]


def test_the_error_of_a_task_is_its_last_exception() -> None:
    log = [
        {"event": "starting", "level": "info"},
        {"event": "first", "level": "error", "error_detail": [{"exc_type": "OSError", "exc_value": "disk gone"}]},
        {"event": "told", "level": "error"},
    ]
    assert _find_error(log) == "OSError: disk gone"
    assert _find_error(log[::2]) == "told"
    assert _find_error(log[:1]) is None


def saw(runs: list[Run], published: int) -> Observation:
    return Observation(tuple(runs), "stage running", Backlog(readable=100, published=published))


def in_turn(*observations: Observation) -> Callable[[], Observation]:
    waiting = iter(observations)
    return lambda: next(waiting)


def a_range(partition: int, start: int, until: int, accepted: int, quarantined: int = 0) -> RangeRecord:
    return RangeRecord(
        topic="orders", partition=partition, start=start, until=until, accepted=accepted, duplicates=0,
        quarantined=quarantined, tombstones=0, filtered=0, holes=0, aborted=0, markers=0, compacted=0, accepted_loss=0,
        unexplained=0,
    )  # fmt: skip


def history(*ranges: RangeRecord) -> BatchHistory:
    return BatchHistory(A_BATCH, decisions=(), attempts=(), duplicates=(), ranges=ranges, checks=())


A_BATCH = Batch(1, "orders", Lane.LIVE, BatchState.PUBLISHED, 1, "run", (), 0, None)  # type: ignore[arg-type]
