"""What a batch says in its producers' own numbering: numbers that never arrived, and numbers that came again. Pure.

A producer that numbers its records per key shows what no offset can show: a record that never reached the broker. A
number is missing when a higher one of its series was seen and it was not; it is told once, by the batch that opens the
gap. See ``record_rules.Sequence`` for the rules, and for what is neither.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

KEY_CHARACTERS_SHOWN = 40


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


def describe_numbers(facts: NumberFacts, quarantined: int) -> str:
    """Say what is known beside missing and repeated numbers, such as ``late 2, restarts 1``; empty when it is nothing.

    ``quarantined`` records of the batch have numbers that nobody could read.
    """
    told = {name: getattr(facts, name) for name in ("gaps", "late", "restarts", "joined", "unnumbered")}
    texts = [f"{name} {count:,}" for name, count in told.items() if count]
    if facts.missing and quarantined:
        texts.append(f"{quarantined:,} records of the batch are in quarantine, whose numbers may be among the missing")
    return ", ".join(texts)


def name_missing(key: Mapping[str, Any], first: int, last: int, at: int) -> str:
    """Say which numbers are missing beside the record with number ``at``: ``device_id 7: 5..7 missing before 8``."""
    numbers = str(first) if first == last else f"{first}..{last}"
    side = "before" if at > last else "after"
    return f"{_name(key)}: {numbers} missing {side} {at}"


def name_repeated(key: Mapping[str, Any], number: int) -> str:
    """Say which number came again: ``device_id 7: 5 came again``."""
    return f"{_name(key)}: {number} came again"


def _name(key: Mapping[str, Any]) -> str:
    return ", ".join(f"{column} {_shorten(value)}" for column, value in key.items())


def _shorten(value: Any) -> str:
    """A value as text that no terminal takes for a command, and no longer than what tells one key from another."""
    text = str(value).encode("unicode_escape").decode("ascii")
    return text if len(text) <= KEY_CHARACTERS_SHOWN else f"{text[:KEY_CHARACTERS_SHOWN]}…"
