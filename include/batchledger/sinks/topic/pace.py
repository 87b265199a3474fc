"""Whether a batch can be sent within the transaction timeout, judged from its pace so far.

A batch that is too large for the timeout will be too large the next time: a person has to know. If the broker, the
database or this process stood still for a while, the same batch may be fast enough the next time.
"""

from enum import Enum, auto

TRUSTED_SHARE = 0.25
USABLE_SHARE = 0.9
STANDSTILL_SECONDS = 5.0
"""A longer pause between two acknowledgements is no part of the pace: usually they come many times a second."""


class Verdict(Enum):
    """The judgement on a batch that is being sent."""

    IN_TIME = auto()
    TOO_SLOW = auto()
    STOOD_STILL = auto()


class SendingPace:
    """How far a batch of ``count`` records has come, and how long nothing moved."""

    def __init__(self, count: int, timeout_seconds: float, began_at: float) -> None:
        self.count = count
        self.began_at = began_at
        self._timeout_seconds = timeout_seconds
        self._moved_at = began_at
        self._acknowledged = 0
        self._still_seconds = 0.0

    def look(self, now: float, acknowledged: int) -> Verdict:
        """Judge the pace when more records are acknowledged than before, or all. A silent broker counts as in time."""
        if acknowledged <= self._acknowledged < self.count:
            return Verdict.IN_TIME
        pause_seconds = now - self._moved_at
        self._still_seconds += pause_seconds if pause_seconds > STANDSTILL_SECONDS else 0.0
        self._acknowledged, self._moved_at = acknowledged, now
        elapsed_seconds = now - self.began_at
        if not is_too_slow(elapsed_seconds, acknowledged, self.count, self._timeout_seconds):
            return Verdict.IN_TIME
        if is_too_slow(elapsed_seconds - self._still_seconds, acknowledged, self.count, self._timeout_seconds):
            return Verdict.TOO_SLOW
        return Verdict.STOOD_STILL


def is_too_slow(elapsed_seconds: float, sent: int, count: int, timeout_seconds: float) -> bool:
    """Return whether ``count`` records will take too long, so that it is better to give up now.

    The pace counts once a quarter of the timeout is over, and a tenth is kept for the commit. Example: 15 s of 60 s
    have brought 1,000 of 4,000 records: all would take 60 s, and only 54 s are usable.
    """
    usable_seconds = timeout_seconds * USABLE_SHARE
    if elapsed_seconds > usable_seconds:
        return True
    if elapsed_seconds < timeout_seconds * TRUSTED_SHARE or sent >= count:
        return False
    return elapsed_seconds * count > usable_seconds * max(1, sent)
