"""How the ranges of a batch are divided among tasks: by work, whatever partitions they are of."""

from collections.abc import Iterator, Sequence

from batchledger.model.offsets import OffsetRange

OFFSETS_IN_SHARE = 500_000
"""About a second of one core's work. If all cores are busy, smaller shares only cost the start of more tasks."""

FEWEST_OFFSETS = 50_000
"""Fewer are not worth a task of their own, even if it would run beside the others."""

OFFSETS_WORTH_A_RANGE = 100
"""What a range costs besides its records: as much as reading so many more."""


def is_worth_several_tasks(ranges: Sequence[OffsetRange]) -> bool:
    """Whether it matters to ``divide`` how many tasks can run side by side."""
    return _find_work(ranges) >= 2 * FEWEST_OFFSETS


def _find_work(ranges: Sequence[OffsetRange]) -> int:
    """Return what the ranges cost, in offsets to be read."""
    return sum(OFFSETS_WORTH_A_RANGE + len(each) for each in ranges)


def divide(
    ranges: Sequence[OffsetRange], slots: int = 1, offsets: int = OFFSETS_IN_SHARE, *, splits: bool = True
) -> list[list[OffsetRange]]:
    """Return shares that cost all the same, each at most about as much as reading ``offsets`` offsets.

    ``slots`` tasks can run side by side, so there are as many shares if each costs ``FEWEST_OFFSETS``. Each offset of
    ``ranges`` is in one share, in their order. A range that crosses the end of a share is split there; if ``splits`` is
    false, all of it is in the share of its middle. Without ranges there is one empty share. Raises ValueError when
    ``offsets`` is not positive.

    Example: ``orders[0] 0..500`` and ``orders[1] 0..100`` cost 800. In two shares they are ``orders[0] 0..300``, and
    ``orders[0] 300..500`` with ``orders[1] 0..100``.
    """
    if offsets <= 0:
        raise ValueError(f"a share of {offsets} offsets is not possible")
    work = _find_work(ranges)
    count = max(1, round(work / offsets), min(slots, work // FEWEST_OFFSETS))
    shares: list[list[OffsetRange]] = [[] for _ in range(count)]
    done = 0
    for each in ranges:
        done += OFFSETS_WORTH_A_RANGE
        if splits:
            for share, part in _split(each, done, work, count):
                shares[share].append(part)
        elif len(each):
            shares[(done + len(each) // 2) * count // work].append(each)
        done += len(each)
    return [share for share in shares if share] or [[]]


def _split(range_: OffsetRange, done: int, work: int, count: int) -> Iterator[tuple[int, OffsetRange]]:
    """Yield the parts of a range with the number of the share of each; ``done`` is the work before its first offset."""
    start = range_.start
    while start < range_.until:
        share = (done + start - range_.start) * count // work
        # The first offset whose work belongs to the next share.
        end = range_.start + -(-(share + 1) * work // count) - done
        until = min(range_.until, end)
        yield share, OffsetRange(range_.partition, start, until)
        start = until
