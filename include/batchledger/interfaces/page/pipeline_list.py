"""The list of pipelines and watches: filtered, sorted and paged over all that the user may see.

What the ledger knows of a line is read for the lines of one page. Two columns, the last batch and the rows of today,
are read for all lines if the list is sorted by them.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote

from batchledger.books.overview import LastBatch, Volume, load_last_batches, load_volumes
from batchledger.database.sessions import keep_connections
from batchledger.interfaces.page.ordering import SortColumn, SortOrder, arrange, count_found, holds_text
from batchledger.interfaces.page.ribbon import draw_bars
from batchledger.interfaces.surveys import Standing
from batchledger.model.errors import ServiceUnavailableError
from batchledger.model.findings import PipelineState
from batchledger.monitoring.health import Threats, describe_quarantine, describe_threats

BAR_HEIGHT = 24
NOTE_CHARACTERS = 240
EXPIRES_SOON = timedelta(days=1)


class PipelineColumn(SortColumn):
    """The columns of the list."""

    NAME = "name"
    STATE = "state"
    UNREAD = "unread", True
    OLDEST = "oldest"
    LAST = "last", True
    ROWS = "rows", True


WORST_FIRST = SortOrder(PipelineColumn.STATE)
NEEDS_LEDGER = (PipelineColumn.LAST, PipelineColumn.ROWS)


@dataclass(frozen=True, slots=True)
class Facts:
    """What the ledgers know of pipelines, by name; a ledger that does not answer leaves its part empty."""

    last: Mapping[str, LastBatch] = field(default_factory=dict)
    volumes: Mapping[str, Volume] = field(default_factory=dict)


def choose(standings: Iterable[Standing], text: str, state: str) -> list[Standing]:
    """Return the pipelines whose name holds the text, in one state if one is given. Pure."""
    return [each for each in standings if holds_text(text, each.name) and state in ("", each.health.state.value)]


def count_states(standings: Iterable[Standing]) -> dict[PipelineState, int]:
    """Return how many pipelines are in each state that there is, the worst first. Pure."""
    states = [each.health.state for each in standings]
    return {each: states.count(each) for each in PipelineState if each in states}


def sort_standings(standings: Sequence[Standing], order: SortOrder[PipelineColumn], facts: Facts) -> list[Standing]:
    """Return pipelines, which come the worst first, in another order. Pure."""
    ranks = {each: rank for rank, each in enumerate(PipelineState)}

    def find_oldest(each: Standing) -> datetime | None:
        threats = each.health.threats
        return threats.oldest_unread.oldest_unread_at if threats and threats.oldest_unread else None

    def find_last(each: Standing) -> datetime | None:
        if each.look is not None:
            return each.look.looked_at
        last = facts.last.get(each.name)
        return (last.published_at or last.planned_at) if last else None

    values: Mapping[PipelineColumn, Callable[[Standing], Any]] = {
        PipelineColumn.NAME: lambda each: each.name,
        PipelineColumn.STATE: lambda each: ranks[each.health.state],
        PipelineColumn.UNREAD: lambda each: each.health.threats.unread_records if each.health.threats else None,
        PipelineColumn.OLDEST: find_oldest,
        PipelineColumn.LAST: find_last,
        PipelineColumn.ROWS: lambda each: facts.volumes[each.name].rows_today if each.name in facts.volumes else None,
    }
    return arrange(standings, order, values, WORST_FIRST)


def load_facts(standings: Iterable[Standing]) -> Facts:
    """Ask each ledger once for all of its pipelines."""
    known = [each for each in standings if each.dsn and not each.is_watch]
    last: dict[str, LastBatch] = {}
    volumes: dict[str, Volume] = {}
    with keep_connections():
        for dsn in dict.fromkeys(each.dsn for each in known if each.dsn):
            names = [each.name for each in known if each.dsn == dsn]
            try:
                last.update(load_last_batches(dsn, names))
                volumes.update(load_volumes(dsn, names, datetime.now(UTC)))
            except ServiceUnavailableError:
                # The overview says so, once.
                continue
    return Facts(last, volumes)


def fill_rows(standings: Iterable[Standing], facts: Facts) -> list[dict[str, Any]]:
    """Return what each line shows."""
    rows = []
    for each in standings:
        volume, threats = facts.volumes.get(each.name), each.health.threats
        # The first sentence says what it is; the others are on the page of the pipeline.
        first = each.health.detail.partition("\n")[0].partition(". ")[0].removesuffix(".")
        notes = [first, *warn(threats, datetime.now(UTC)), *each.notes]
        notes += describe_quarantine(each.health.quarantine)
        last = facts.last.get(each.name)
        if last is not None and last.unknown_fields:
            notes.append(f"fields that source.schema does not declare: {', '.join(last.unknown_fields)}")
        rows.append(
            {
                "standing": each,
                "page": _find_page(each),
                "threats": threats,
                "notes": [_shorten(note) for note in notes if note],
                "last": last,
                "volume": volume,
                "bars": draw_bars(volume.rows_by_hour, BAR_HEIGHT) if volume else (),
            }
        )
    return rows


def _find_page(each: Standing) -> str | None:
    """Return where the page is, below the root of the pages. A pipeline whose file is gone has none."""
    if each.health.state is PipelineState.FILE_GONE:
        return None
    return f"{'watches' if each.is_watch else 'pipelines'}/{quote(each.name)}"


def count_standings(found: Sequence[Standing], standings: Sequence[Standing]) -> str:
    """Return how many of these were found: ``3 of 340 pipelines, 2 watches``. Pure."""
    counts = [
        count_found(sum(each.is_watch is kind for each in found), total, *words)
        for kind, words in ((False, ("pipeline",)), (True, ("watch", "watches")))
        if (total := sum(each.is_watch is kind for each in standings))
    ]
    return ", ".join(counts) or "0 pipelines"


def warn(threats: Threats | None, now: datetime) -> list[str]:
    """Return what a person should know now: open transactions, and records that expire within a day. Pure."""
    if threats is None:
        return []
    expiring = threats.first_to_expire
    is_near = expiring is not None and expiring.expires_at is not None and expiring.expires_at - now < EXPIRES_SOON
    return describe_threats(threats if is_near else replace(threats, first_to_expire=None), now)


def _shorten(text: str) -> str:
    return text if len(text) <= NOTE_CHARACTERS else f"{text[:NOTE_CHARACTERS]}…"
