"""The pages that only show: what is read for each, and with what it is put on the page. Changes nothing.

They are plain functions, which the server runs in threads, because what they ask blocks.
"""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any
from urllib.parse import urlencode

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.core_api.security import GetUserDep
from fastapi import HTTPException, Query, Request, status
from fastapi import Path as InPath
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from pydantic import BeforeValidator, Field

from batchledger.adapters.postgres.database import keep_connections
from batchledger.adapters.postgres.ledger.overview import find_batch_of_run, load_last_batches, load_volumes
from batchledger.config.pipeline_file import PipelineConfig, load_pipeline
from batchledger.interfaces.data_docs.folder import DocsFolder
from batchledger.interfaces.page.access import may_act
from batchledger.interfaces.page.airflow_state import find_switched_off
from batchledger.interfaces.page.batch_view import BatchView, look_at_batch
from batchledger.interfaces.page.lookout import Lookout
from batchledger.interfaces.page.overview import Standing
from batchledger.interfaces.page.paging import turn_to
from batchledger.interfaces.page.pipeline_view import (
    BATCHES_ON_PAGE,
    HOLDERS_SHOWN,
    SEGMENTS_SHOWN,
    look_at_partition,
    look_at_pipeline,
)
from batchledger.interfaces.page.rendering import show
from batchledger.interfaces.page.ribbon import draw_bars
from batchledger.model.batch import BatchState
from batchledger.model.checks import Severity
from batchledger.model.errors import ServiceUnavailableError, UnknownBatchError, UnknownPipelineError
from batchledger.model.findings import IncidentKind, PipelineState
from batchledger.model.offsets import LARGEST_OFFSET, LARGEST_PARTITION, OffsetRange, TopicPartition
from batchledger.model.refusals import is_refused_by_target
from batchledger.monitoring.health import Threats, describe_quarantine, describe_threats
from batchledger.proof.coverage import Kind
from batchledger.wiring import ledger_dsn

PIPELINES_ON_PAGE = 50
BAR_HEIGHT = 24
NOTE_CHARACTERS = 240
EXPIRES_SOON = timedelta(days=1)
URGENT = [each.row.state for each in IncidentKind if each.row.state and each.row.severity is Severity.CRITICAL]
_PATIENCE_SECONDS = 0.2

Pipeline = Annotated[str, InPath(alias="dag_id")]
Page = Annotated[int, Query(ge=1, le=10**6)]
# A form sends what was left empty, too.
Offset = Annotated[
    Annotated[int, Field(ge=0, le=LARGEST_OFFSET)] | None, BeforeValidator(lambda value: value or None), Query()
]
BatchId = Annotated[int, InPath(ge=0, le=LARGEST_OFFSET)]
Text = Annotated[str | None, Query(max_length=200)]


def show_pipelines(
    request: Request,
    user: GetUserDep,
    q: Text = None,
    state: Text = None,
    page: Page = 1,
) -> HTMLResponse:
    """Show the pipelines whose DAGs the user may see, the worst first."""
    lookout: Lookout = request.app.state.lookout
    sight = lookout.overview.look(_PATIENCE_SECONDS)
    readable = get_auth_manager().get_authorized_dag_ids(user=user)
    mine = [each for each in (sight.value.standings if sight.value else ()) if each.name in readable]
    counts = {each: sum(one.health.state is each for one in mine) for each in PipelineState}
    chosen = [each for each in mine if (q or "").lower() in each.name and state in (None, "", each.health.state.value)]
    paging = turn_to(page, len(chosen), PIPELINES_ON_PAGE)
    shown = chosen[paging.shown]
    lookout.finder.want(each.name for each in shown)
    query = {"q": q or "", "state": state or ""}
    # The error of a connection that only others use would name what the user may not see.
    told = {line for each in mine for line in each.health.detail.split("\n")}
    problems = [each for each in (sight.value.problems if sight.value else ()) if each in told]
    problems += [sight.error] if sight.error else []
    return show(
        request,
        "pipelines.html.j2",
        view=sight.value,
        found_at=sight.found_at,
        problems=problems,
        counts={each: count for each, count in counts.items() if count},
        rows=_fill_rows(shown),
        states=list(PipelineState),
        query=query,
        paging=paging,
        to_page=lambda number: f"?{urlencode({**query, 'page': number})}",
    )


def _fill_rows(standings: list[Standing]) -> list[dict[str, Any]]:
    """Return what each line shows; a ledger that does not answer leaves its part of the lines empty."""
    last, volumes = {}, {}
    with keep_connections():
        for dsn in dict.fromkeys(each.dsn for each in standings if each.dsn):
            names = [each.name for each in standings if each.dsn == dsn]
            try:
                last.update(load_last_batches(dsn, names))
                volumes.update(load_volumes(dsn, names, datetime.now(UTC)))
            except ServiceUnavailableError:
                # The overview says so, once.
                continue
    rows = []
    for each in standings:
        volume = volumes.get(each.name)
        threats = each.health.threats
        # The first sentence says what it is; the others are on the page of the pipeline.
        notes = [each.health.detail.partition(". ")[0], *warn(threats, datetime.now(UTC)), *each.notes]
        notes += describe_quarantine(each.health.quarantine)
        rows.append(
            {
                "standing": each,
                "threats": threats,
                "notes": [_shorten(note) for note in notes if note],
                "last": last.get(each.name),
                "volume": volume,
                "bars": draw_bars(volume.rows_by_hour, BAR_HEIGHT) if volume else (),
            }
        )
    return rows


def warn(threats: Threats | None, now: datetime) -> list[str]:
    """Return what somebody should know now: open transactions, and records that expire within a day."""
    if threats is None:
        return []
    expiring = threats.first_to_expire
    is_near = expiring is not None and expiring.expires_at is not None and expiring.expires_at - now < EXPIRES_SOON
    return describe_threats(threats if is_near else replace(threats, first_to_expire=None), now)


def show_pipeline(
    request: Request, dag_id: Pipeline, user: GetUserDep, page: Page = 1, before: Offset = None
) -> HTMLResponse:
    """Show one pipeline."""
    config = load(dag_id)
    with keep_connections():
        view = look_at_pipeline(request.app.state.lookout, config, page, before)
    return show(
        request,
        "pipeline.html.j2",
        view=view,
        now=view.freshness.now,
        can_act=may_act(user, dag_id),
        switched_off=bool(find_switched_off([dag_id])),
        threats=warn(view.state.health.threats, view.freshness.now),
        urgent=URGENT,
        kinds=[each for each in Kind if any(each in strip.counts for strip in view.strips)],
        before=before,
        batches_on_page=BATCHES_ON_PAGE,
        to_page=lambda number: f"?page={number}#partitions",
    )


def show_partition(
    request: Request,
    dag_id: Pipeline,
    topic: str,
    partition: Annotated[int, InPath(ge=0, le=LARGEST_PARTITION)],
    *,
    start: Offset = None,
    until: Offset = None,
) -> HTMLResponse:
    """Show a part of a partition."""
    config = load(dag_id)
    with keep_connections():
        view = look_at_partition(request.app.state.lookout, config, TopicPartition(topic, partition), start, until)
    if view is None:
        raise HTTPException(status.HTTP_404_NOT_FOUND, f"{dag_id} has no position in this partition")
    return show(
        request,
        "partition.html.j2",
        view=view,
        now=view.freshness.now,
        zooms=_zooms(view.whole, view.strip.frame),
        holders_shown=HOLDERS_SHOWN,
        segments_shown=SEGMENTS_SHOWN,
    )


def _zooms(whole: OffsetRange, frame: OffsetRange) -> dict[str, tuple[int, int]]:
    """Return where the ways closer, farther and along lead, by what they are called."""
    size = max(1, len(frame))
    middle = frame.start + size // 2
    half = max(1, size // 8)
    zooms = {
        "closer": (middle - half, middle + half),
        "farther": (frame.start - size * 3 // 2, frame.until + size * 3 // 2),
        "← earlier": (frame.start - size * 3 // 4, frame.until - size * 3 // 4),
        "later →": (frame.start + size * 3 // 4, frame.until + size * 3 // 4),
    }
    return {
        text: (min(max(start, whole.start), whole.until), max(min(until, whole.until), whole.start))
        for text, (start, until) in zooms.items()
    }


def show_batch(
    request: Request, dag_id: Pipeline, batch_id: BatchId, user: GetUserDep, *, page: Page = 1, quarantine: Page = 1
) -> HTMLResponse:
    """Show one batch."""
    config = load(dag_id)
    with keep_connections():
        view = look_at_batch(config, batch_id, page, quarantine)
    if view is None:
        raise UnknownBatchError(f"{dag_id} has no batch {batch_id}")
    pages = {"page": page, "quarantine": quarantine}
    return show(
        request,
        "batch.html.j2",
        view=view,
        can_act=may_act(user, dag_id),
        ways=_ways_on(view),
        has_docs=_has_docs(dag_id, batch_id),
        to_page=lambda number: f"?{urlencode({**pages, 'page': number})}#balance",
        to_quarantine_page=lambda number: f"?{urlencode({**pages, 'quarantine': number})}#quarantine",
    )


def _ways_on(view: BatchView) -> dict[str, str]:
    """Return what a person can do with the batch, each with its place on the page of decisions."""
    batch = view.history.batch
    ways = {}
    if batch.state is BatchState.BLOCKED and not (batch.is_dry_run or is_refused_by_target(view.history.checks)):
        ways["Accept"] = "accept"
    if not batch.state.is_final and not batch.is_dry_run:
        ways |= {"Take again": "retry"}
        if batch.state is not BatchState.COMMITTING:
            ways |= {"Discard": "discard"}
    if batch.state is BatchState.PUBLISHED:
        ways["Publish again"] = "replay"
    if view.quarantine.total:
        ways["Publish quarantine again"] = "quarantine-replay"
    return ways


def _has_docs(pipeline: str, batch_id: int) -> bool:
    page = DocsFolder.of_environment().find_page(pipeline, str(batch_id))
    return page is not None and page.is_file()


def show_run(request: Request, dag_id: Pipeline, run_id: str) -> Response:
    """Lead from a run to the batch that it worked on last, or say that it had none."""
    config = load(dag_id)
    with keep_connections():
        batch_id = find_batch_of_run(ledger_dsn(config), dag_id, run_id)
    if batch_id is None:
        return show(
            request,
            "message.html.j2",
            title=f"{dag_id}: no batch of this run",
            text=f"Run {run_id} has no batch of its own: it has not planned one yet, found nothing to do, or was "
            "refused. Its task “plan” says which in its log.",
            kind="wait",
            link=(f"{request.scope['root_path']}/pipelines/{dag_id}", f"See {dag_id}", False),
            live=True,
        )
    return RedirectResponse(f"{request.scope['root_path']}/pipelines/{dag_id}/batches/{batch_id}")


def load(dag_id: str) -> PipelineConfig:
    """Return a pipeline. Other DAGs have this tab, too, and are none."""
    try:
        return load_pipeline(dag_id)
    except UnknownPipelineError as error:
        raise HTTPException(
            status.HTTP_404_NOT_FOUND, f"the DAG {dag_id} is no pipeline: there is no file of this name"
        ) from error


def _shorten(text: str) -> str:
    return text if len(text) <= NOTE_CHARACTERS else f"{text[:NOTE_CHARACTERS]}…"
