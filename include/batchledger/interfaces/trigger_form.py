"""What a run is asked to do: the fields of the trigger form, checked and turned into a request, and back. Pure.

A scheduled run has no form: it catches up. A backfill run publishes the records of its interval again. The run id does
not show a backfill, because a run that a backfill takes again keeps its old id. This module checks what JSON schema
cannot say about the fields, and a refusal begins with the name of the field.
"""

import difflib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Self

from batchledger.lifecycle.orders import CatchUp, Request, Retake
from batchledger.model.actors import UNKNOWN_USER
from batchledger.model.batch import Decision
from batchledger.model.errors import ConfigurationError
from batchledger.model.offsets import LARGEST_OFFSET, OffsetRange, describe_ranges, find_overlaps
from batchledger.model.quoting import quote, shorten
from batchledger.planning.replay import Interval, Quarantined, Replay, Window

OWN_KEY, OF_PIPELINE = "batchledger", "pipeline"
"""Where the configuration of a run of a person's own DAG has what the form of a pipeline's DAG has.

There a key of its own names the pipeline that is asked for; without it, all pipelines of the DAG are.
"""


class Field(StrEnum):
    """The fields, by their names in the configuration of a run."""

    ACTION = "action"
    REASON = "reason"
    MAX_RECORDS = "max_records"
    WINDOW_SINCE = "window_since"
    WINDOW_UNTIL = "window_until"
    RANGES = "ranges"
    ALLOW_EXPIRED = "allow_expired"
    DRY_RUN = "dry_run"
    BATCH_ID = "batch_id"


class Action(StrEnum):
    """What the form offers: each with its label, and the fields that it needs and may have."""

    label: str
    needed: Collection[Field]
    optional: Collection[Field]

    CATCH_UP = "catch_up", "Catch up now", (), (Field.REASON,)
    ONE_BATCH = "one_batch", "Take one batch with another record limit", (Field.MAX_RECORDS, Field.REASON)
    REPLAY_WINDOW = (
        "replay_window", "Replay a time window",
        (Field.WINDOW_SINCE, Field.WINDOW_UNTIL, Field.REASON), (Field.ALLOW_EXPIRED, Field.DRY_RUN),
    )  # fmt: skip
    REPLAY_RANGES = (
        "replay_ranges", "Replay offset ranges", (Field.RANGES, Field.REASON), (Field.ALLOW_EXPIRED, Field.DRY_RUN),
    )  # fmt: skip
    REPLAY_QUARANTINE = (
        "replay_quarantine", "Publish records from quarantine again", (Field.RANGES, Field.REASON), (Field.DRY_RUN,),
    )  # fmt: skip
    RETRY_BATCH = "retry_batch", "Try a blocked batch again", (Field.BATCH_ID, Field.REASON)

    def __new__(
        cls, name: str, label: str = "", needed: Collection[Field] = (), optional: Collection[Field] = ()
    ) -> Self:
        """Return an action by its name in the configuration of a run."""
        action = str.__new__(cls, name)
        action._value_, action.label, action.needed, action.optional = name, label, needed, optional
        return action


TEXTS = (Field.ACTION, Field.REASON, Field.WINDOW_SINCE, Field.WINDOW_UNTIL)
NUMBERS = (Field.MAX_RECORDS, Field.BATCH_ID)
SWITCHES = (Field.ALLOW_EXPIRED, Field.DRY_RUN)
LARGEST_NUMBER = LARGEST_OFFSET
"""The ledger holds no larger one."""

OPTIONAL_OF_BACKFILL = (Field.REASON, Field.ALLOW_EXPIRED, Field.DRY_RUN)

REASON_OF_DRY_RUN = "a dry run"


@dataclass(frozen=True, slots=True)
class RunFacts:
    """What Airflow tells a task of its run.

    ``interval`` is None for runs without a logical date. ``times_cleared`` counts how often a person cleared the run or
    a part of it. ``created_by`` is None for scheduled runs. ``started_at`` is the same for all tasks of the run and all
    their tries; it differs from that moment of a deleted run with the same id.
    """

    run_id: str
    is_backfill: bool = False
    interval: tuple[datetime, datetime] | None = None
    times_cleared: int = 0
    created_by: str | None = None
    started_at: datetime | None = None

    @property
    def request(self) -> str:
        """The identity of a request, which stays the same when a task is tried again.

        A run that is cleared asks anew. A run that is created under the id of a deleted one asks anew, too: the id
        of a backfill run is made of its interval alone.
        """
        started = f"@{self.started_at.isoformat()}" if self.started_at else ""
        return f"{self.run_id}#{self.times_cleared}{started}"


def find_own_order(configuration: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what a run of a person's own DAG is asked for; empty if it only runs.

    The configuration is the person's. What looks like an order in another place is refused, so that it is not ignored
    in silence. Raises ConfigurationError.
    """
    given = configuration.get(OWN_KEY)
    if given is None:
        others = {str(each).lower(): str(each) for each in configuration if each != OWN_KEY}
        meant = [others[each] for each in difflib.get_close_matches(OWN_KEY, others, n=1, cutoff=0.8)]
        found = meant or ([Field.ACTION] if configuration.get(Field.ACTION) in list(Action) else [])
        given = {}
        if found:
            raise ConfigurationError(
                f"{quote(str(found[0]))} in the configuration of the run asks for nothing in this DAG.",
                why=f"A DAG of one's own has orders below the key {OWN_KEY}.",
                advice=f'Write {{"{OWN_KEY}": {{"action": …, "reason": …}}}}.',
                subject=OWN_KEY,
            )
    if not isinstance(given, dict):
        raise ConfigurationError(
            f"{OWN_KEY} in the configuration of the run is not a mapping. Nothing was changed.",
            advice=f'Write {{"{OWN_KEY}": {{"action": …, "reason": …}}}}.',
            subject=OWN_KEY,
        )
    # The key is ours alone: a misspelt "pipeline" would order the same of every pipeline in the DAG.
    _refuse([f"{name}: there is no such field below {OWN_KEY}" for name in given if name not in {*Field, OF_PIPELINE}])
    return given


def read_request(configuration: Mapping[str, Any], run: RunFacts, topics: Sequence[str]) -> Request:
    """Return what the run is asked to do. Raises ConfigurationError with one line for each fault, led by its field.

    ``configuration`` is the run's. A setting of Airflow decides whether it has passed the form's JSON schema, so each
    field is checked here, too. The form sends every field, so an empty one counts as not given. Names that other tools
    leave there are ignored, unless they are nearly a field's.
    """
    _refuse_misspelt(configuration)
    given = {field: configuration[field] for field in Field if not _is_empty(field, configuration.get(field))}
    _refuse([f"{field}: {fault}" for field, value in given.items() if (fault := _explain(field, value)) is not None])
    action = Action(given.pop(Field.ACTION, Action.CATCH_UP))
    if Field.DRY_RUN in given:
        given.setdefault(Field.REASON, REASON_OF_DRY_RUN)
    if run.is_backfill:
        return _order_of_backfill(action, given, run)
    _check_fields(given, action.needed, action.optional, f"{Field.ACTION} {action}")
    match action:
        case Action.CATCH_UP:
            known = run.created_by or Field.REASON in given
            return Request(CatchUp(), _decide(run, given.get(Field.REASON, "catch up")) if known else None)
        case Action.ONE_BATCH:
            return Request(CatchUp(given[Field.MAX_RECORDS]), _decide(run, given[Field.REASON]))
        case Action.REPLAY_WINDOW:
            return _republish(_read_window(given), given, run, given[Field.REASON])
        case Action.REPLAY_RANGES | Action.REPLAY_QUARANTINE:
            ranges = _read_ranges(given[Field.RANGES], topics)
            what = Quarantined(ranges) if action is Action.REPLAY_QUARANTINE else ranges
            return _republish(what, given, run, given[Field.REASON])
        case Action.RETRY_BATCH:
            return Request(Retake(given[Field.BATCH_ID]), _decide(run, given[Field.REASON]))


def _order_of_backfill(action: Action, given: Mapping[Field, Any], run: RunFacts) -> Request:
    """Publish the interval of the run again. Raises ConfigurationError if it has none, as runs of older timetables."""
    if action is not Action.CATCH_UP:
        raise ConfigurationError(
            f"{Field.ACTION}: a backfill publishes the interval of each of its runs again, found {action}.",
            advice=f"Leave {Field.ACTION} at {Action.CATCH_UP}, or trigger a single run.",
            subject=Field.ACTION,
        )
    _check_fields(given, (), OPTIONAL_OF_BACKFILL, "a backfill")
    since, until = run.interval or (None, None)
    if since is None or until is None or since >= until:
        raise ConfigurationError(
            f"Run {run.run_id} has no interval to publish again.",
            why="It was created before the pipeline had this schedule.",
            advice=f"Trigger a run with {Field.ACTION} {Action.REPLAY_WINDOW} instead.",
        )
    interval = Interval(since, until)
    more = f": {given[Field.REASON]}" if Field.REASON in given else ""
    return _republish(interval, given, run, f"backfill of {interval}{more}")


def _republish(
    what: Window | Quarantined | tuple[OffsetRange, ...], given: Mapping[Field, Any], run: RunFacts, reason: str
) -> Request:
    replay, decision = Replay(what, allow_expired=Field.ALLOW_EXPIRED in given), _decide(run, reason)
    if Field.DRY_RUN in given:
        return Request(replay, decision, is_dry_run=True)
    return Request(replay, decision, key=run.request)


def write_request(order: Replay | Retake, reason: str, *, is_dry_run: bool = False) -> dict[str, Any]:
    """Return the configuration of a run that carries out the order: ``read_request`` turns it into the order again.

    A backfill's interval has no configuration: Airflow makes such runs.
    """
    asked: dict[Field, Any] = {Field.REASON: reason}
    if isinstance(order, Retake):
        asked |= {Field.ACTION: Action.RETRY_BATCH.value, Field.BATCH_ID: order.batch_id}
    else:
        asked |= _write_what(order.what)
        if order.allow_expired:
            asked[Field.ALLOW_EXPIRED] = True
    if is_dry_run:
        asked[Field.DRY_RUN] = True
    return {str(field): value for field, value in asked.items()}


def _write_what(what: Window | Quarantined | tuple[OffsetRange, ...]) -> dict[Field, Any]:
    if isinstance(what, Window):
        return {
            Field.ACTION: Action.REPLAY_WINDOW.value,
            Field.WINDOW_SINCE: what.since.isoformat(),
            Field.WINDOW_UNTIL: what.until.isoformat(),
        }
    if isinstance(what, Quarantined):
        return {Field.ACTION: Action.REPLAY_QUARANTINE.value, Field.RANGES: [str(each) for each in what.ranges]}
    return {Field.ACTION: Action.REPLAY_RANGES.value, Field.RANGES: [str(each) for each in what]}


def _decide(run: RunFacts, reason: str) -> Decision:
    """Name who asked. Airflow keeps the creator of a run; only its audit log says who cleared it."""
    decided_by = run.created_by or UNKNOWN_USER
    if run.times_cleared:
        cleared = f"a run of {run.created_by}" if run.created_by else "a scheduled run"
        decided_by = f"{UNKNOWN_USER}, cleared {cleared} (see Airflow's audit log)"
    return Decision(decided_by, reason.strip())


def _check_fields(
    given: Mapping[Field, Any], needed: Collection[Field], optional: Collection[Field], asked: str
) -> None:
    missing = [f"{field}: {asked} needs it" for field in needed if field not in given]
    foreign = [
        f"{field}: does not belong to {asked}; leave it empty, or choose another {Field.ACTION}"
        for field in given
        if field not in needed and field not in optional
    ]
    _refuse(missing + foreign)


def _read_window(given: Mapping[Field, Any]) -> Window:
    since, until = (read_moment(field, given[field]) for field in (Field.WINDOW_SINCE, Field.WINDOW_UNTIL))
    if since >= until:
        raise ConfigurationError(
            f"{Field.WINDOW_UNTIL}: has to be after {Field.WINDOW_SINCE}",
            why=f"Found {Field.WINDOW_SINCE} {since.isoformat()} and {Field.WINDOW_UNTIL} {until.isoformat()}.",
            advice="Exchange the two, or change one of them.",
            subject=Field.WINDOW_UNTIL,
        )
    return Window(since, until)


def read_moment(field: str, text: str) -> datetime:
    """Return the moment that a text names, in UTC. Raises ConfigurationError, led by the field, if it has no zone."""
    try:
        moment = datetime.fromisoformat(text)
        if moment.tzinfo is not None:
            # Overflows if the moment lies in the years 1 to 9999 in its own zone, and outside of them in UTC.
            return moment.astimezone(UTC)
    except (ValueError, OverflowError):
        pass
    raise ConfigurationError(
        f"{field}: {quote(text)} is not a moment with a zone",
        advice="Write for example 2026-11-21T00:00:00Z",
        subject=field,
    )


def _read_ranges(lines: Sequence[str], topics: Sequence[str]) -> tuple[OffsetRange, ...]:
    ranges, faults = [], []
    for line in filter(None, map(str.strip, lines)):
        try:
            found = OffsetRange.parse(line)
        except ValueError as error:
            faults.append(shorten(str(error)))
            continue
        ranges.append(found)
        if found.partition.topic not in topics:
            faults.append(f"{found}: the pipeline does not read this topic; it reads {', '.join(topics)}")
        elif not found:
            faults.append(f"{found}: holds no offset")
    overlaps = find_overlaps(ranges)
    if overlaps:
        faults.append(f"{describe_ranges(overlaps)}: named more than once")
    _refuse([f"{Field.RANGES}: {fault}" for fault in faults])
    return tuple(ranges)


def _refuse_misspelt(configuration: Mapping[str, Any]) -> None:
    unknown = [name for name in configuration if name not in set(Field)]
    near = {name: difflib.get_close_matches(name, list(Field), n=1) for name in unknown}
    _refuse([f"{name}: there is no such field; did you mean {close[0]}?" for name, close in near.items() if close])


def _refuse(faults: Sequence[str]) -> None:
    if faults:
        raise ConfigurationError("\n".join(faults), subject=faults[0].partition(":")[0])


def _is_empty(field: Field, value: Any) -> bool:
    """Whether the form sends this value for a field that was left alone or emptied."""
    if field in SWITCHES and value is False:
        return True
    if field is Field.RANGES and isinstance(value, list):
        return all(_is_blank(each) for each in value)
    return value is None or (field in TEXTS and _is_blank(value))


def _is_blank(value: Any) -> bool:
    return value is None or (isinstance(value, str) and not value.strip())


def _explain(field: Field, value: Any) -> str | None:
    """Return what is wrong with the type of a value that is not empty, in words; None if nothing is."""
    if field is Field.RANGES:
        is_fine = isinstance(value, list) and all(isinstance(each, str) for each in value)
        wanted = "a list of texts such as orders[3] 1200..1500"
    elif field in SWITCHES:
        is_fine, wanted = value is True, "true or false, without quotes"
    elif field in NUMBERS:
        is_fine = type(value) is int and 0 < value <= LARGEST_NUMBER
        wanted = f"a whole number from 1 to {LARGEST_NUMBER}, without quotes"
    elif field is Field.ACTION:
        is_fine, wanted = value in list(Action), f"one of {', '.join(Action)}"
    else:
        is_fine = isinstance(value, str) and _is_storable(value)
        wanted = "text, without NUL or other characters that no database holds"
    return None if is_fine else f"has to be {wanted}; found {quote(value)}"


def _is_storable(text: str) -> bool:
    """Whether PostgreSQL can hold the text: neither NUL nor half of a surrogate pair."""
    return "\0" not in text and not any("\ud800" <= each <= "\udfff" for each in text)
