"""What proposals of columns have in common, whatever language a schema is written in."""

from collections.abc import Callable

from batchledger.model.records.types import ColumnType, Json

MOST_TYPES = 1_000
"""How many types a column that is proposed may consist of; a person would not declare more."""

Count = Callable[[], None]
"""Counts one type of a column."""


class _TooManyError(Exception):
    pass


def propose_within_bounds(propose: Callable[[Count], ColumnType]) -> ColumnType:
    """Return the type that ``propose`` returns, or ``jsonb`` if it counts more than ``MOST_TYPES``.

    A schema names a type once and uses it often, so a column of 20 levels may consist of millions of types.
    """
    left = MOST_TYPES

    def count() -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise _TooManyError

    try:
        return propose(count)
    except _TooManyError:
        return Json.JSONB
