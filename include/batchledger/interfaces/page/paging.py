"""Which part of a list a page shows."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Paging:
    """Page ``number`` of ``pages``, the first is 1; there is always one, and it shows ``size`` entries at most."""

    number: int
    pages: int
    size: int

    @property
    def shown(self) -> slice:
        """The entries of the page."""
        return slice((self.number - 1) * self.size, self.number * self.size)


def turn_to(number: int, entries: int, size: int) -> Paging:
    """Return that page of so many entries, or the nearest one that there is."""
    pages = max(1, -(-entries // size))
    return Paging(min(max(number, 1), pages), pages, size)
