"""What a batch says in its producers' own numbering: numbers that never arrived, and numbers that came again. Pure.

A producer that numbers its records per key shows what no offset can show: a record that never reached the broker. A
number is missing when a higher one of its series was seen and it was not; it is told once, by the batch that opens the
gap. See ``rules.Sequence`` for the rules, and for what is neither.

What is told names the record and the numbers, never the key, which is a value of a record.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class NumberFacts:
    """The counts of one batch. ``series`` are the keys that it has records of.

    ``missing`` numbers lie in ``gaps``, which this batch opens. ``repeated`` records have a number that was seen
    before. ``late`` numbers are lower than one that an earlier batch has brought, and new; ``restarts`` is how often a
    numbering began anew. ``joined`` are series that were never seen and do not begin at the start. ``unnumbered``
    records have no value in the key or no number.
    """

    series: int = 0
    missing: int = 0
    gaps: int = 0
    repeated: int = 0
    late: int = 0
    restarts: int = 0
    joined: int = 0
    unnumbered: int = 0


def describe_numbers(facts: NumberFacts, unreadable: int) -> str:
    """Say what is known beside missing and repeated numbers, such as ``late: 2, restarts: 1``, or nothing.

    ``unreadable`` records of the batch may have numbers, but nobody can tell.
    """
    told = {name: getattr(facts, name) for name in ("gaps", "late", "restarts", "joined", "unnumbered")}
    texts = [", ".join(f"{name}: {count:,}" for name, count in told.items() if count)]
    if facts.missing and unreadable:
        texts.append(f"records that cannot be read, whose numbers may be among the missing: {unreadable:,}")
    return "; ".join(filter(None, texts))


def name_missing(first: int, last: int, at: int) -> str:
    """Say which numbers are missing beside the record with number ``at``: ``5..7 missing before 8``."""
    numbers = str(first) if first == last else f"{first}..{last}"
    return f"{numbers} missing {'before' if at > last else 'after'} {at}"


def name_repeated(number: int) -> str:
    """Say which number came again: ``5 came again``."""
    return f"{number} came again"
