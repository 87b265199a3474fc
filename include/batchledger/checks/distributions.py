"""Describes the distribution of a column's values in a hundred numbers, and measures how far two of them are apart.

A column of numbers is described by the 1st to 99th percentiles, and the share of rows without a number. A column of
texts or booleans is described by the shares of nulls and of the most frequent values. Each value is under a hash, so
that the ledger holds no text of a record. Percentiles of few numbers would be these numbers, so they are not kept for
fewer than 100.
"""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from psycopg import sql

from batchledger.ports import RowsToCheck

LEAST_NUMBERS = 100
LEVELS = tuple(level / 100 for level in range(1, 100))
PERCENTILES, SHARES, NULLS = "percentiles", "shares", "nulls"
_NUMBERS = ("smallint", "integer", "bigint", "real", "double precision", "numeric")

Numbers = Sequence[float] | Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Distribution:
    """``kind`` is ``percentiles`` or ``shares``.

    With ``percentiles``, ``count`` rows have a number, and there are no percentiles if none has one. ``nulls`` is the
    share of the other rows: null, not a number, or infinite.
    """

    kind: str
    numbers: Numbers
    nulls: float = 0.0
    count: int = LEAST_NUMBERS

    @property
    def kept(self) -> Mapping[str, Any]:
        """What later batches are compared with."""
        if self.kind == SHARES:
            return {SHARES: self.numbers}
        return {NULLS: self.nulls, **({PERCENTILES: self.numbers} if self.count >= LEAST_NUMBERS else {})}


def observe_distribution(rows: RowsToCheck, column: str) -> Distribution:
    """Return how the values of a column are distributed; there has to be a row. Raises psycopg.Error."""
    names = {"column": sql.Identifier(column), "rows": sql.Identifier(rows.table)}
    with rows.connection.cursor() as cursor:
        cursor.execute(sql.SQL("select pg_typeof({column})::text from {rows} limit 1").format(**names))
        type_ = str(cursor.fetchall()[0][0])
        kind = PERCENTILES if type_ in _NUMBERS else SHARES
        statement = sql.SQL(files(__package__).joinpath("sql", f"observe_{kind}.sql").read_text("utf-8")).format(
            **names
        )
        if kind == SHARES:
            cursor.execute(statement)
            return Distribution(kind, {name: float(share) for name, share in cursor})
        cursor.execute(statement, {"levels": list(LEVELS)})
        ((percentiles, count, total),) = cursor.fetchall()
        return Distribution(kind, percentiles or (), 1 - count / total, count)


def measure_distance(present: Distribution, recent: Sequence[Any]) -> float:
    """Return the distance to the mean of the distributions before, from 0 (the same) to 1 (nothing in common).

    It is the Kolmogorov-Smirnov distance for percentiles, and the total variation for shares.
    """
    if isinstance(present.numbers, Mapping):
        return _total_variation(present.numbers, recent)
    return _kolmogorov_smirnov(present.numbers, recent)


def _kolmogorov_smirnov(present: Sequence[float], recent: Sequence[Sequence[float]]) -> float:
    places = sorted({value for each in (present, *recent) for value in each})
    return max(
        abs(_share_up_to(present, place) - sum(_share_up_to(each, place) for each in recent) / len(recent))
        for place in places
    )


def _share_up_to(percentiles: Sequence[float], place: float) -> float:
    """Return which share of the values is at most ``place``, to a hundredth."""
    return bisect_right(percentiles, place) / len(percentiles)


def _total_variation(present: Mapping[str, float], recent: Sequence[Mapping[str, float]]) -> float:
    names = {name for each in (present, *recent) for name in each}
    usual = {name: sum(each.get(name, 0.0) for each in recent) / len(recent) for name in names}
    return sum(abs(present.get(name, 0.0) - usual[name]) for name in names) / 2
