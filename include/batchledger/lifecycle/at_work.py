"""Who begins: a run leaves a batch alone while another run is demonstrably at work on it (``presence``).

Otherwise runs that start more often than a batch takes would fence each other for ever. The published rows do not
depend on it: every write carries the number of its attempt (I4).
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from batchledger.lifecycle.platform import Platform
from batchledger.model.batch import Batch
from batchledger.model.presence import Presence
from batchledger.model.refusals import left_to

POLL_SECONDS = 0.5

Wait = Callable[[float], None]
"""Lets so many seconds pass."""


@contextmanager
def begin_work(platform: Platform, batch_id: int, run: str) -> Iterator[Platform]:
    """Be at work on a batch for the duration of the block, and yield the platform for it. Raises AtWorkError.

    It does nothing within such a block, in this process or in one that it has started for a step.
    """
    if platform.held == batch_id:
        yield platform
        return
    with platform.presences.hold(batch_id, run, platform.patience) as other:
        if other is not None:
            raise left_to(platform.ledger.load_batch(batch_id), other, platform.patience)
        yield replace(platform, held=batch_id)


def hand_on(platform: Platform, batch_id: int, run: str) -> None:
    """Keep a batch for the next step of a run whose steps are processes of their own. Raises AtWorkError."""
    with begin_work(platform, batch_id, run):
        pass


@contextmanager
def go_on_with_work(platform: Platform, batch_id: int, run: str) -> Iterator[Platform]:
    """Do the same for a run that has its attempt already: it goes on, even if another run is about to start."""
    if platform.held == batch_id:
        yield platform
        return
    with platform.presences.hold(batch_id, run, platform.patience):
        yield replace(platform, held=batch_id)


def require_left(platform: Platform, batch: Batch, run: str) -> None:
    """Raise AtWorkError while another run is at work on the batch."""
    other = find_other(platform, batch.batch_id, run)
    if other is not None:
        raise left_to(batch, other, platform.patience)


def find_other(platform: Platform, batch_id: int, run: str | None = None) -> Presence | None:
    """Return which other run than ``run`` is at work on the batch; None if none is, or if that is no longer certain."""
    found = platform.presences.find(batch_id)
    if found is None or found.run == run or not found.lasts(platform.patience):
        return None
    return found


def wait_until_left(
    platform: Platform, batch_id: int, run: str | None = None, wait: Wait = time.sleep, seconds: float | None = None
) -> bool:
    """Return once no other run than ``run`` is at work on the batch; False if that took ``seconds``.

    A run at work may take hours. For a run that has died or stalls, the wait ends with its presence.
    """
    polls = 0
    while find_other(platform, batch_id, run) is not None:
        if seconds is not None and polls * POLL_SECONDS >= seconds:
            return False
        wait(POLL_SECONDS)
        polls += 1
    return True
