"""What terminal and page say in the same words: sentences, bytes, outcomes, and the changes of a decision. Pure."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from batchledger.model.batch import DecisionKind, DecisionRecord
from batchledger.model.checks import Outcome
from batchledger.model.offsets import count_offsets, describe_ranges
from batchledger.proof.watching import Discrepancy, TableLook

CHANGES_SHOWN = 4
RANGES_SHOWN = 40

WORDS_BY_OUTCOME = {
    Outcome.PASSED: "passed",
    Outcome.FAILED: "failed",
    Outcome.NOT_RUN: "could not run",
    Outcome.EMPTY: "nothing to judge",
}


def as_sentence(text: str) -> str:
    """Return a text as a sentence: with a capital letter and a full stop."""
    return f"{text[0].upper()}{text[1:]}."


def list_differences(look: TableLook) -> list[tuple[Discrepancy, int, str, str]]:
    """Return each difference with its number of offsets or rows, where they are, and what it says; wrong ones first."""
    order = list(Discrepancy)
    told = []
    for each in sorted(look.found, key=lambda each: order.index(each.difference)):
        meaning = each.difference.meaning
        if each.ranges and each.count > count_offsets(each.ranges):
            meaning += f"; the look has kept the first {len(each.ranges):,} ranges"
        told.append((each.difference, each.count, describe_ranges(each.ranges, RANGES_SHOWN), meaning))
    return told


def escape(value: bytes | None) -> str:
    """Return bytes as text with everything but printable ASCII escaped, so that no terminal takes it for a command."""
    return "(no value)" if value is None else repr(value)[2:-1]


def escape_json(text: str) -> str:
    """Return JSON, or another text, with everything escaped as in JSON that a terminal might take for a command."""
    return "".join(each if each.isprintable() else json.dumps(each)[1:-1] for each in text)


def summarise_changes(record: DecisionRecord) -> str:
    """Return what a decision changed, in one line: ``epoch: 0 → 1, next offset orders[0]: 10 → 4``.

    A request has changed nothing: ``would change: epoch: 0 → 1``.
    """
    changes = [f"{what}: {before} → {after}" for what, before, after in list_changes(record)]
    more = f" and {len(changes) - CHANGES_SHOWN} more" if len(changes) > CHANGES_SHOWN else ""
    would = "would change: " if changes and record.kind == DecisionKind.REQUEST else ""
    return would + ", ".join(changes[:CHANGES_SHOWN]) + more


def list_changes(record: DecisionRecord) -> Iterator[tuple[str, str, str]]:
    """Yield name, value before and value after of everything that changed."""
    before, after = _flatten(record.before or {}), _flatten(record.after or {})
    for what in {**before, **after}:
        if before.get(what) != after.get(what):
            yield what, _as_text(before.get(what)), _as_text(after.get(what))


def _flatten(values: Mapping[str, Any]) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in values.items():
        label = name.replace("_", " ")
        if isinstance(value, Mapping):
            flat |= {f"{label} {key}": each for key, each in value.items()}
        elif value != []:
            flat[label] = value
    return flat


def _as_text(value: Any) -> str:
    match value:
        case None:
            return "-"
        case bool():
            return "yes" if value else "no"
        case int():
            return f"{value:,}"
        case list():
            return ", ".join(map(str, value))
        case _:
            return str(value)
