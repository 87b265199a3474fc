"""What people are to know of a look at a table that others write, and the questions that it answers. Pure.

A look that has found something wrong opens an incident, which goes on until a look proves the table. What a look cannot
say is a warning. A look that was not possible is another one. The watch's name stands where a pipeline's does.
"""

from collections.abc import Collection
from dataclasses import replace
from typing import Any

from batchledger.model.errors import BatchledgerError
from batchledger.model.findings import IncidentKind, Place, WatchCheck, list_kinds
from batchledger.model.incidents import Condition, Findings
from batchledger.model.offsets import describe_ranges
from batchledger.monitoring.ledger_audit import Fact, Question
from batchledger.proof.watching import LACKING, Discrepancy, Found, TableLook, WatchOutcome

_KIND_BY_OUTCOME = {
    WatchOutcome.WRONG: IncidentKind.TABLE_WRONG,
    WatchOutcome.CANNOT_SAY: IncidentKind.TABLE_UNPROVED,
}
_ASKED = list_kinds(Place.WATCH) | {IncidentKind.UNREACHABLE}
"""The kinds of incidents that a look answers for."""
_REPEATED = (Discrepancy.TWICE,)


def find_conditions(look: TableLook, run: str | None = None) -> Findings:
    """Return what people are to know of a look. What it cannot say does not end what an earlier look has found wrong.

    ``run`` is the run of Airflow that has looked.
    """
    found = tuple(
        Condition.of(kind, look.watch, _name_kinds(told), _tell(look, told), run=run)
        for outcome, kind in _KIND_BY_OUTCOME.items()
        if (told := [each for each in look.found if each.difference.outcome is outcome])
    )
    is_unknown = look.outcome is WatchOutcome.CANNOT_SAY
    ended = f"{look.proved:,} offsets are proved"
    return Findings(
        found,
        _ASKED - {IncidentKind.TABLE_WRONG} if is_unknown else _ASKED,
        endings={(look.watch, kind, ""): ended for kind in list_kinds(Place.WATCH)},
    )


def find_unreachable(watch: str, error: BatchledgerError, run: str | None = None) -> Findings:
    """Return that a look was not possible, which ends nothing."""
    kind = IncidentKind.UNREACHABLE
    condition = Condition.of(kind, watch, lines=tuple(str(error).splitlines()), run=run)
    told = replace(condition, title="the table cannot be looked at", command=f"batchledger watch {watch}")
    return Findings((told,), frozenset({kind}))


def end_all(watch: str) -> Findings:
    """Return that all incidents of a watch end, because it is forgotten."""
    return Findings((), _ASKED, endings={(watch, kind, ""): "the watch was forgotten" for kind in _ASKED})


def ask_look(look: TableLook) -> list[Question]:
    """Return the questions of a look with its facts: no gaps, no duplicates, no wrong rows, freshness, volume."""
    others = [each for each in Discrepancy if each.outcome is WatchOutcome.WRONG]
    rest = [each for each in others if each not in (*LACKING, *_REPEATED)]
    scope = f"{look.offsets:,} offsets"
    late = [
        Fact(str(each.partition), each.behind, f"{each.partition}: its newest {each.behind:,} records have no row")
        for each in look.partitions
    ]
    unproved = [
        Fact(str(each.partition), left, f"{each.partition}: {left:,} of {each.until - each.start:,} offsets not proved")
        for each in look.partitions
        for left in [each.until - each.start - each.proved]
    ]
    unclear = [each for each in Discrepancy if each.outcome is WatchOutcome.CANNOT_SAY]
    return [
        Question(WatchCheck.GAPS, scope, _count(look, LACKING)),
        Question(WatchCheck.DUPLICATES, scope, _count(look, _REPEATED)),
        Question(WatchCheck.WRONG_ROWS, scope, _count(look, rest)),
        Question(WatchCheck.FRESHNESS, scope, tuple(late)),
        Question(WatchCheck.VOLUME, scope, (*unproved, *_count(look, unclear))),
    ]


def describe_look(look: TableLook) -> dict[str, Any]:
    """Return what a task says of a look, as JSON: the outcome, counts, and how much of each difference was found."""
    counts = {"offsets": look.offsets, "rows": look.rows, "proved": look.proved, "late": look.late}
    told = {"watch": look.watch, "outcome": str(look.outcome), "looked_at": look.looked_at.isoformat()}
    return {**told, **counts, "found": {str(each): count for each, count in look.count_by_difference.items()}}


def tell_failure(look: TableLook) -> str:
    """Return what is wrong with the table, or cannot be said of it, in words: a title and its lines for each."""
    found = find_conditions(look).found
    return "\n".join(line for each in found for line in (f"{look.watch}: {each.title}", *each.lines))


def tell_found(found: Found) -> str:
    """Return a finding in one line: ``missing 1: orders[1] 7..8, Kafka has records there, read just now``."""
    told = (describe_ranges(found.ranges), found.difference.meaning)
    return f"{found.difference} {found.count:,}: " + ", ".join(filter(None, told))


def _name_kinds(found: Collection[Found]) -> str:
    """Return the end of a title. It counts nothing: a title that changes with each look would be no news."""
    return f" — {', '.join(dict.fromkeys(str(each.difference) for each in found))}"


def _tell(look: TableLook, found: Collection[Found]) -> tuple[str, ...]:
    return (*map(tell_found, found), *look.notes, f"{look.proved:,} of {look.offsets:,} offsets are proved")


def _count(look: TableLook, differences: Collection[Discrepancy]) -> tuple[Fact, ...]:
    """Return a fact for each of these differences, also for one that was not found."""
    return tuple(
        Fact(str(kind), look.count_by_difference.get(kind, 0), "; ".join(map(tell_found, found)))
        for kind in differences
        for found in [[each for each in look.found if each.difference is kind]]
    )
