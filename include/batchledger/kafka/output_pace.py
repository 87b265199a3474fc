"""Whether a batch can be sent within the transaction timeout, judged from its pace so far."""

TRUSTED_SHARE = 0.25
USABLE_SHARE = 0.9


def is_too_slow(elapsed_seconds: float, sent: int, count: int, timeout_seconds: float) -> bool:
    """Return whether ``count`` records will not be sent in time, so that it is better to give up now.

    The pace is believed once a quarter of the time is over, and a tenth is kept for the commit. Example: of 60 s, 15 s
    have brought 1,000 of 4,000 records: all would take 60 s, and only 54 s are there.
    """
    usable_seconds = timeout_seconds * USABLE_SHARE
    if elapsed_seconds > usable_seconds:
        return True
    if elapsed_seconds < timeout_seconds * TRUSTED_SHARE or sent >= count:
        return False
    return elapsed_seconds * count > usable_seconds * max(1, sent)
