"""The page of a watch: what its newest look has found, and the looks before it. It reads the ledger alone."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Annotated, Any

from fastapi import HTTPException, Query, Request, status
from fastapi.responses import HTMLResponse

from batchledger.config.watch_file import WatchConfig, load_watch
from batchledger.database.sessions import keep_connections
from batchledger.interfaces.batch_view import turn_to
from batchledger.interfaces.page.access import OfVisitor, Pipeline
from batchledger.interfaces.page.airflow_state import find_switched_off
from batchledger.interfaces.page.ordering import (
    SortColumn,
    SortOrder,
    arrange,
    count_found,
    holds_text,
    read_order,
    write_query,
)
from batchledger.interfaces.page.partition_list import FILTERED_FROM, PARTITIONS_ON_PAGE
from batchledger.interfaces.page.rendering import show
from batchledger.interfaces.page.ribbon import Piece, draw_ribbon
from batchledger.interfaces.page.rights import Verb
from batchledger.interfaces.wording import list_differences
from batchledger.ledger.watches import WatchStore
from batchledger.looking import watch_ledger_dsn
from batchledger.model.errors import UnknownPipelineError
from batchledger.model.findings import PipelineState
from batchledger.model.offsets import OffsetRange
from batchledger.monitoring.health import describe_duration
from batchledger.proof.coverage import Segment, count_by_kind
from batchledger.proof.marks import OffsetMark, mark_offsets
from batchledger.proof.watching import PartitionStanding, TableLook
from batchledger.watching.history import load_summaries

LOOKS_SHOWN = 20


class WatchedColumn(SortColumn):
    """The columns of the list of partitions."""

    PARTITION = "partition"
    PROVED = "proved", True
    UNPROVED = "unproved", True
    ROWS = "rows", True
    LATE = "late", True


BY_NUMBER = SortOrder(WatchedColumn.PARTITION)


@dataclass(frozen=True, slots=True)
class WatchStrip:
    """One partition: its bar, and the same in numbers. ``counts`` has the offsets of each mark in the frame.

    A watch has no position in a partition.
    """

    standing: PartitionStanding
    frame: OffsetRange
    pieces: Sequence[Piece]
    counts: Mapping[OffsetMark, int]
    position_at: None = None


def show_watch(
    request: Request,
    dag_id: Pipeline,
    visitor: OfVisitor,
    *,
    q: Annotated[str | None, Query(max_length=200)] = None,
    sort: Annotated[str | None, Query(max_length=200)] = None,
    page: Annotated[int, Query(ge=1, le=10**6)] = 1,
) -> HTMLResponse:
    """Show one watch. Raises FileRefusedError, and what the ledger raises."""
    config, host = _load(dag_id), visitor.require(Verb.LOOK)
    dsn = watch_ledger_dsn(config)
    with keep_connections():
        looks = load_summaries(dsn, [dag_id], LOOKS_SHOWN).get(dag_id, [])
        look = WatchStore(dsn).load_newest(dag_id)
    order = read_order(sort, WatchedColumn, BY_NUMBER)
    found = arrange_watched(look.partitions if look else (), q or "", order)
    paging = turn_to(page, len(found), PARTITIONS_ON_PAGE)
    strips = draw_strips(look, found[paging.shown]) if look else []
    query = {"q": q or "", "sort": "" if order == BY_NUMBER else str(order)}
    partitions = len(look.partitions) if look else 0
    return show(
        request,
        "watch.html.j2",
        name=dag_id,
        host=host,
        switched_off=bool(find_switched_off([host.dag_id])),
        state=PipelineState(look.outcome) if look else PipelineState.NEVER_LOOKED,
        look=look,
        looks=looks,
        differences=list_differences(look) if look else [],
        commands=_list_commands(dag_id, look),
        said=describe_file(config),
        strips=strips,
        kinds=[each for each in OffsetMark if any(each in strip.counts for strip in strips)],
        partitions=partitions,
        found=count_found(len(found), partitions, "partition"),
        filtered_from=FILTERED_FROM,
        keys=WatchedColumn,
        order=order,
        query=query,
        paging=paging,
        to_page=lambda number: request.url.path + write_query(query, page=number, anchor="#partitions"),
    )


def _load(name: str) -> WatchConfig:
    try:
        return load_watch(name)
    except UnknownPipelineError as error:
        told = f"There is no watch of the name {name}."
        raise HTTPException(status.HTTP_404_NOT_FOUND, told) from error


def arrange_watched(
    standings: Sequence[PartitionStanding], text: str, order: SortOrder[WatchedColumn]
) -> list[PartitionStanding]:
    """Return the partitions whose name holds the text, in an order. Pure."""
    values: Mapping[WatchedColumn, Callable[[PartitionStanding], Any]] = {
        WatchedColumn.PARTITION: lambda each: each.partition,
        WatchedColumn.PROVED: lambda each: each.proved,
        WatchedColumn.UNPROVED: lambda each: each.until - each.start - each.proved,
        WatchedColumn.ROWS: lambda each: each.rows,
        WatchedColumn.LATE: lambda each: each.end - each.until,
    }
    chosen = [each for each in standings if holds_text(text, str(each.partition))]
    return arrange(sorted(chosen, key=lambda each: each.partition), order, values, BY_NUMBER)


def draw_strips(look: TableLook, standings: Sequence[PartitionStanding]) -> list[WatchStrip]:
    """Return the bars of these partitions. Pure."""
    marked = mark_offsets(standings, look.found)
    return [_draw(each, marked[each.partition]) for each in standings]


def _draw(standing: PartitionStanding, marked: Sequence[Segment[OffsetMark]]) -> WatchStrip:
    first = marked[0].range.start if marked else standing.start
    frame = OffsetRange(standing.partition, first, standing.end)
    pieces = draw_ribbon(frame, marked, worst_first=OffsetMark)
    return WatchStrip(standing, frame, pieces, count_by_kind(marked, OffsetMark))


def _list_commands(name: str, look: TableLook | None) -> Iterator[tuple[str, str]]:
    """Yield what a person does next, and the command for it."""
    yield "Look now", f"batchledger watch {name}"
    if look is not None:
        if look.lacking:
            yield "Show the records without a row", f"batchledger watch {name} --missing --records"
            yield "Bring them back", f"batchledger watch {name} --missing --as-pipeline {name}_missing"
        yield "Prove everything again", f"batchledger watch {name} --all"


def describe_file(config: WatchConfig) -> dict[str, str]:
    """Return what the file of a watch says, in words. Pure."""
    known_by = config.model_dump(include={"coordinates", "key", "compare"}, exclude_none=True)
    moment = config.since_moment
    since = "the start of the log"
    if moment is not None:
        since = f"{describe_duration(moment)} ago" if isinstance(moment, timedelta) else f"{moment:%Y-%m-%d %H:%M %Z}"
    table = config.table
    return {
        "Topics": f"{', '.join(config.source.topics)} ({config.source.connection})",
        "Table": f"{table.name} ({table.connection or table.catalog})",
        **{key.capitalize(): _write(value) for key, value in known_by.items()},
        "Holes": config.source.holes,
        "Looks": config.schedule or "when a person or another DAG asks",
        "Lateness": describe_duration(timedelta(seconds=config.lateness)),
        "Watched since": since,
        "Proved again by each look": f"{config.recheck:g} %",
        "Alerts": ", ".join(config.alerts) or "none",
        "Ledger": config.ledger,
    }


def _write(value: Mapping[str, Any] | Sequence[str]) -> str:
    parts = [f"{name}: {_write(part)}" for name, part in value.items()] if isinstance(value, Mapping) else value
    return parts if isinstance(parts, str) else ", ".join(parts)
