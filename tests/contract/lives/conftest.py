"""Whole lives of batches by the rules of a pipeline file, with PostgreSQL as the only service."""

from collections.abc import Iterator

import pytest

from tests.contract.lives.world import open_worlds


@pytest.fixture(autouse=True)
def _worlds(warehouse_dsn: str) -> Iterator[None]:
    with open_worlds(warehouse_dsn):
        yield
