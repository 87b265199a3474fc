"""The producers' own numbering in a batch: numbers that never arrived, and numbers that came again. Pure.

A producer that numbers its records per key shows what no offset can show: a record that never reached the broker. A
number is missing if a higher one of its series was seen and it was not. The batch that opens the gap reports it, once.
See ``rules.SequenceRule`` for the rules, and for numbers that are neither.

Reports name the record and the numbers, never the key: it is a value of a record.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class NumberFacts:
    """The counts of one batch. ``series`` counts the keys of its records.

    ``missing`` numbers lie in ``gaps``, which this batch opens. ``repeated`` records have a number that was seen
    before. ``late`` numbers are new, and lower than one that an earlier batch has brought. ``restarts`` is how often a
    numbering began anew. ``joined`` are new series that do not begin at the start. ``unnumbered`` records have no value
    in the key or no number.
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
    """Count everything beside missing and repeated numbers: ``late: 2, restarts: 1``, or an empty text.

    ``unreadable`` records of the batch may have numbers that cannot be read.
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
