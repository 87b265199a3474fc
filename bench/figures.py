"""The measurements as values: one figure for each part, subject and measure, with a value for every round."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from statistics import median
from typing import Self


@dataclass(frozen=True)
class Figure:
    """One measure of one subject. Units are in the measure's name: ``rows_per_second``, ``peak_memory_bytes``."""

    part: str
    subject: str
    measure: str
    values: tuple[float, ...]

    @property
    def median(self) -> float:
        """The median of all rounds."""
        return median(self.values)


@dataclass(frozen=True)
class Figures:
    """All figures of one run."""

    all: tuple[Figure, ...]

    @classmethod
    def collect(cls, found: Iterable[Figure]) -> Self:
        """Join the values of the same measure, taken in several rounds, in their order."""
        values_by_key: dict[tuple[str, str, str], tuple[float, ...]] = {}
        for each in found:
            key = (each.part, each.subject, each.measure)
            values_by_key[key] = values_by_key.get(key, ()) + each.values
        return cls(tuple(Figure(*key, values) for key, values in values_by_key.items()))

    def median(self, part: str, subject: str, measure: str) -> float | None:
        """The median of one measure's rounds; None if it was not taken."""
        figure = self._find(part, subject, measure)
        return None if figure is None else figure.median

    def values(self, part: str, subject: str, measure: str) -> tuple[float, ...]:
        """One measure's rounds; empty if it was not taken."""
        figure = self._find(part, subject, measure)
        return () if figure is None else figure.values

    def total(self, part: str, subject: str, measure: str) -> float | None:
        """The sum of one measure's rounds, for counts; None if it was not taken."""
        figure = self._find(part, subject, measure)
        return None if figure is None else sum(figure.values)

    def subjects(self, part: str) -> list[str]:
        """The subjects of a part, in the order of their first figure."""
        return list(dict.fromkeys(each.subject for each in self.all if each.part == part))

    def _find(self, part: str, subject: str, measure: str) -> Figure | None:
        found = (each for each in self.all if (each.part, each.subject, each.measure) == (part, subject, measure))
        return next(found, None)


def describe(part: str, subject: str, **value_by_measure: float) -> Iterator[Figure]:
    """Figures of one round."""
    for measure, value in value_by_measure.items():
        yield Figure(part, subject, measure, (float(value),))
