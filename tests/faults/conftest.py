"""What every test of faults leaves behind: no run of its own."""

from collections.abc import Iterator

import pytest

from tests.faults.run_and_die import ending_runs


@pytest.fixture(autouse=True)
def _no_run_is_left() -> Iterator[None]:
    with ending_runs():
        yield
