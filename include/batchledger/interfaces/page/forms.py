"""What somebody asks for in a form, read once: either a decision that is carried out here, or the fields of a run.

Both are refused by the name of the field. Neither touches anything.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from batchledger.interfaces.notation import parse_moment, parse_target
from batchledger.interfaces.trigger_form import Action, Field, RunFacts, read_order
from batchledger.lifecycle import decisions
from batchledger.lifecycle.ownership import load_batch
from batchledger.lifecycle.platform import Platform
from batchledger.model import effects
from batchledger.model.batch import Decided, Decision, DecisionKind, DecisionRecord
from batchledger.model.errors import ConfigurationError
from batchledger.model.offsets import OffsetRange, merge_ranges
from batchledger.model.refusals import never_published
from batchledger.planning.rewind import Rewind

Fields = Mapping[str, str]
Decide = Callable[[Platform, Decision], Decided]

# Carried out by a run of the pipeline's DAG, because Spark has to read.
BY_RUN = (DecisionKind.REPLAY, DecisionKind.QUARANTINE_REPLAY, DecisionKind.RETRY)
# Shown first by a run that stages, audits and compares, and publishes nothing.
REHEARSED_BY_RUN = (DecisionKind.REPLAY, DecisionKind.QUARANTINE_REPLAY)


def read_decision(kind: DecisionKind, fields: Fields) -> Decide:
    """Return what carries the decision out; with a platform of ``decisions.rehearse`` it only shows what changes.

    Raises ConfigurationError.
    """
    if kind not in _READERS:
        raise ConfigurationError(f"{kind} is not decided here", subject="kind")
    return _READERS[kind](fields)


def read_run(kind: DecisionKind, fields: Fields, topics: Sequence[str], *, dry_run: bool) -> dict[str, Any]:
    """Return the configuration of a run of the pipeline's DAG that does what is asked; it has passed ``trigger_form``.

    Raises ConfigurationError.
    """
    run: dict[str, Any] = {Field.REASON: fields.get("reason", "")}
    match kind:
        case DecisionKind.RETRY:
            run |= {Field.ACTION: Action.RETRY_BATCH, Field.BATCH_ID: read_batch(fields)}
        case DecisionKind.QUARANTINE_REPLAY:
            run |= {Field.ACTION: Action.REPLAY_QUARANTINE, Field.RANGES: _lines(fields, "ranges")}
        case DecisionKind.REPLAY if ranges := _lines(fields, "ranges"):
            if _has_window(fields):
                raise ConfigurationError("name a window of time or ranges, not both", subject="ranges")
            run |= {Field.ACTION: Action.REPLAY_RANGES, Field.RANGES: ranges}
        case DecisionKind.REPLAY:
            if not _has_window(fields):
                raise ConfigurationError("name what to publish again: a window of time, or ranges", subject="ranges")
            run |= {
                Field.ACTION: Action.REPLAY_WINDOW,
                Field.WINDOW_SINCE: _read_moment(fields, "since"),
                Field.WINDOW_UNTIL: _read_moment(fields, "until"),
            }
        case _:
            raise ConfigurationError(f"{kind} is not done by a run", subject="kind")
    if kind is DecisionKind.REPLAY and "allow_expired" in fields:
        run[Field.ALLOW_EXPIRED] = True
    if dry_run:
        run[Field.DRY_RUN] = True
    read_order(run, RunFacts("asked for on the page"), topics)
    return {str(name): value.value if isinstance(value, Action) else value for name, value in run.items()}


def _about_batch(decide: Callable[[Platform, int, Decision], Decided]) -> Callable[[Fields], Decide]:
    def read(fields: Fields) -> Decide:
        batch_id = read_batch(fields)
        return lambda platform, decision: decide(platform, batch_id, decision)

    return read


def _about_loss(
    decide: Callable[[Platform, Sequence[OffsetRange], Decision, int | None], Decided],
) -> Callable[[Fields], Decide]:
    def read(fields: Fields) -> Decide:
        ranges = _read_ranges(fields)
        discard = read_batch(fields, "discard_batch") if fields.get("discard_batch", "").strip() else None
        return lambda platform, decision: decide(platform, ranges, decision, discard)

    return read


def _about_position(fields: Fields) -> Decide:
    asked = _read_rewind(fields)
    return lambda platform, decision: decisions.rewind(platform, asked, decision)


def _about_quarantine(fields: Fields) -> Decide:
    ranges = _read_ranges(fields)
    return lambda platform, decision: _drop(platform, ranges, decision)


def _retake(platform: Platform, batch_id: int, decision: Decision) -> Decided:
    batch = load_batch(platform, batch_id)
    if batch.is_dry_run:
        raise never_published(batch)
    return platform.decisions.retake(batch_id, "a run of its own", decision)


def _drop(platform: Platform, ranges: Sequence[OffsetRange], decision: Decision) -> Decided:
    """Remove what of the ranges is in quarantine; it is looked at once more by the statement that removes it."""
    name = platform.rules.name
    found = merge_ranges(each.range for each in platform.ledger.find_quarantined(name, ranges))
    if not found or (platform.decisions.is_kept and not platform.ledger.drop_quarantined(name, found, decision)):
        return Decided(None, is_new=False)
    effect = effects.dropping(found)
    record = DecisionRecord(
        0, DecisionKind.QUARANTINE_DROP, name, None, decision.decided_by, decision.reason, datetime.now(UTC),
        effect.before, effect.after,
    )  # fmt: skip
    return Decided(record)


def read_batch(fields: Fields, name: str = "batch") -> int:
    """Return the number of a batch. Raises ConfigurationError."""
    text = fields.get(name, "").strip()
    if not re.fullmatch(r"[0-9]{1,18}", text):
        raise ConfigurationError(f"{name}: {text!r} is not the number of a batch", subject=name)
    return int(text)


def _read_ranges(fields: Fields) -> list[OffsetRange]:
    lines = _lines(fields, "ranges")
    if not lines:
        raise ConfigurationError("ranges: name at least one, such as orders[3] 1200..1500", subject="ranges")
    try:
        return [OffsetRange.parse(line) for line in lines]
    except ValueError as error:
        raise ConfigurationError(f"ranges: {error}", subject="ranges") from error


def _read_rewind(fields: Fields) -> Rewind:
    try:
        target = parse_target(_lines(fields, "to"))
    except ValueError as error:
        raise ConfigurationError(f"to: {error}", subject="to") from error
    return Rewind(target, "truncate" in fields, "allow_expired" in fields)


def _has_window(fields: Fields) -> bool:
    return any(fields.get(name, "").strip() for name in ("since", "until"))


def _read_moment(fields: Fields, name: str) -> str:
    try:
        return parse_moment(fields.get(name, "").strip()).isoformat()
    except ValueError as error:
        raise ConfigurationError(f"{name}: {error}", subject=name) from error


def _lines(fields: Fields, name: str) -> list[str]:
    return [line.strip() for line in fields.get(name, "").splitlines() if line.strip()]


_READERS: Mapping[DecisionKind, Callable[[Fields], Decide]] = {
    DecisionKind.ACCEPT: _about_batch(decisions.accept),
    DecisionKind.DISCARD: _about_batch(decisions.discard),
    DecisionKind.RETRY: _about_batch(_retake),
    DecisionKind.ACCEPT_LOSS: _about_loss(decisions.accept_loss),
    DecisionKind.SKIP: _about_loss(decisions.skip),
    DecisionKind.REWIND: _about_position,
    DecisionKind.PAUSE: lambda _: decisions.pause,
    DecisionKind.RESUME: lambda _: decisions.resume,
    DecisionKind.QUARANTINE_DROP: _about_quarantine,
}
