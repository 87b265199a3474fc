"""A bound that a process sets for itself is never wider than the one that it has."""

import multiprocessing
import resource

import pytest

from batchledger.bounds.process_limits import limit_process


def _limit(now: int, wanted: int, most: int) -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (now, most))
    limit_process(resource.RLIMIT_CORE, wanted)
    assert resource.getrlimit(resource.RLIMIT_CORE) == (min(now, wanted), most)


@pytest.mark.parametrize("wanted", [50, 500])
def test_lower_soft_limit_stays(wanted: int) -> None:
    process = multiprocessing.get_context("fork").Process(target=_limit, args=(100, wanted, 1_000))
    process.start()
    process.join(60)
    assert process.exitcode == 0
