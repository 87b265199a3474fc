"""Batches and pipelines as HTML: what the page and Data Docs share, and how values read in both.

A template escapes every value, and raises an error for a name that it is not given. Both use the folder ``templates``,
and each has a folder of its own for the rest.
"""

import re
from datetime import UTC, datetime, timedelta
from typing import Any

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined

from batchledger.interfaces.batch_view import list_steps, sum_balance
from batchledger.interfaces.wording import WORDS_BY_OUTCOME, escape, summarise_changes
from batchledger.model.checks import Outcome
from batchledger.model.counting import describe_count
from batchledger.model.runs import find_place
from batchledger.monitoring.health import describe_duration

PAYLOAD_CHARACTERS = 2000
_SIGNS = {Outcome.PASSED: "✔", Outcome.FAILED: "✘", Outcome.NOT_RUN: "⚠", Outcome.EMPTY: "○"}


def load_templates(package: str, **names: Any) -> Environment:
    """Return the templates of a package and the shared ones; each of them knows ``names``."""
    templates = Environment(
        loader=ChoiceLoader([PackageLoader(package), PackageLoader(__package__)]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.filters |= {
        "ago": _ago,
        "balance": sum_balance,
        "changes": summarise_changes,
        "counted": describe_count,
        "count": lambda value: "" if value is None else f"{value:,}",
        "duration": _duration,
        "moment": lambda value: f"{value.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC" if value else "",
        "outcome": lambda outcome: f"{_SIGNS[outcome]} {WORDS_BY_OUTCOME[outcome]}",
        "payload": _payload,
        "slug": lambda text: re.sub(r"[^a-z0-9]+", "-", str(text).lower()).strip("-"),
        "steps": list_steps,
        "words": lambda name: str(name).replace("_", " "),
    }
    templates.globals |= {"find_place": find_place, **names}
    return templates


def _ago(moment: datetime, now: datetime) -> str:
    """Return how long ago something was, in its largest unit: ``3 min ago``; ``in 5 h`` if it is yet to come."""
    away = abs(now - moment)
    if away < timedelta(seconds=1):
        return "now"
    text = " ".join(describe_duration(away).split(" ")[:2])
    return f"{text} ago" if moment < now else f"in {text}"


def _duration(seconds: float) -> str:
    """Return a duration in its two largest units; below a minute, in seconds with one decimal."""
    return describe_duration(timedelta(seconds=seconds)) if seconds >= 60 else f"{seconds:.1f} s"


def _payload(value: bytes | None) -> str:
    """Return bytes as text in which nothing is hidden; a very long text is cut."""
    text = escape(value)
    return text if len(text) <= PAYLOAD_CHARACTERS else f"{text[:PAYLOAD_CHARACTERS]}… ({len(value or b''):,} bytes)"
