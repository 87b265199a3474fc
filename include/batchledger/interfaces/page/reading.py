"""The pages that only show: what is read for each, and with what it is put on the page. Changes nothing.

They are plain functions, which the server runs in threads, because what they ask blocks.
"""

from typing import Annotated, Any
from urllib.parse import urlencode

from airflow.api_fastapi.core_api.security import GetUserDep
from fastapi import Depends, HTTPException, Query, Request, status
from fastapi import Path as InPath
from fastapi.responses import HTMLResponse, Response
from pydantic import BeforeValidator, Field

from batchledger.books.history import list_quarantine, load_batch_history, load_quoted
from batchledger.config.pipeline_file import PipelineConfig
from batchledger.database.sessions import keep_connections
from batchledger.interfaces.batch_view import BatchView, turn_to
from batchledger.interfaces.data_docs.folder import DocsFolder
from batchledger.interfaces.page.access import OfVisitor, Pipeline, list_readable
from batchledger.interfaces.page.airflow_state import find_switched_off, list_hosted
from batchledger.interfaces.page.batch_list import BATCHES_ARRANGED, COMPARED, NEWEST_FIRST, BatchColumn, BatchQuery
from batchledger.interfaces.page.dag_views import lead_from_dag, load
from batchledger.interfaces.page.forms import OFFERS
from batchledger.interfaces.page.lookout import Lookout
from batchledger.interfaces.page.ordering import read_order, write_query
from batchledger.interfaces.page.partition_list import BY_NUMBER, FILTERED_FROM, PartitionColumn, PartitionQuery
from batchledger.interfaces.page.pipeline_list import (
    NEEDS_LEDGER,
    WORST_FIRST,
    Facts,
    PipelineColumn,
    choose,
    count_standings,
    count_states,
    fill_rows,
    load_facts,
    sort_standings,
    warn,
)
from batchledger.interfaces.page.pipeline_view import (
    HOLDERS_SHOWN,
    SEGMENTS_SHOWN,
    look_at_partition,
    look_at_pipeline,
)
from batchledger.interfaces.page.rendering import show
from batchledger.interfaces.page.rights import Verb
from batchledger.ledger.looks import record_look
from batchledger.ledger.record_schemas import list_schemas
from batchledger.ledger.writer_schemas import list_used_schemas
from batchledger.looking import ledger_dsn
from batchledger.model.actors import Actor
from batchledger.model.batch import BatchState, DecisionKind
from batchledger.model.checks import Severity
from batchledger.model.errors import BatchledgerError
from batchledger.model.findings import IncidentKind
from batchledger.model.offsets import LARGEST_OFFSET, LARGEST_PARTITION, OffsetRange, TopicPartition
from batchledger.model.records.columns import write_columns
from batchledger.model.records.contract import SchemaChange, list_changes
from batchledger.model.refusals import may_be_accepted
from batchledger.proof.coverage import Kind
from batchledger.wiring import compare_schema

PIPELINES_ON_PAGE = 50
RANGES_ON_PAGE = 50
QUARANTINE_ON_PAGE = 20
URGENT = [each.row.state for each in IncidentKind if each.row.state and each.row.severity is Severity.CRITICAL]
RECORDS_COMPARED = 1_000
_PATIENCE_SECONDS = 0.2
_LOOKS = {SchemaChange.ADDITIVE: "passed", SchemaChange.WIDENING: "could-not-run", SchemaChange.BREAKING: "failed"}
"""The colors of states that read alike."""

Page = Annotated[int, Query(ge=1, le=10**6)]
# A form sends what was left empty, too.
Offset = Annotated[
    Annotated[int, Field(ge=0, le=LARGEST_OFFSET)] | None, BeforeValidator(lambda value: value or None), Query()
]
BatchId = Annotated[int, InPath(ge=0, le=LARGEST_OFFSET)]
RequestId = Annotated[int, InPath(ge=0, le=LARGEST_OFFSET)]
Text = Annotated[str | None, Query(max_length=200)]
DagId = Annotated[str | None, Query(max_length=250)]


def show_pipelines(
    request: Request,
    user: GetUserDep,
    *,
    q: Text = None,
    state: Text = None,
    sort: Text = None,
    page: Page = 1,
    dag: DagId = None,
) -> HTMLResponse:
    """Show the pipelines and watches that the user may see, the worst first unless another order is asked for.

    ``dag`` asks for the pipelines that stand in a person's own DAG.
    """
    lookout: Lookout = request.app.state.lookout
    order = read_order(sort, PipelineColumn, WORST_FIRST)
    sight = lookout.overview.look(_PATIENCE_SECONDS)
    readable = set(list_readable(user)) & set(list_hosted(dag)) if dag else list_readable(user)
    mine = [each for each in (sight.value.standings if sight.value else ()) if each.name in readable]
    named = choose(mine, q or "", "")
    chosen = choose(named, "", state or "")
    facts = load_facts(chosen) if order.column in NEEDS_LEDGER else Facts()
    paging = turn_to(page, len(chosen), PIPELINES_ON_PAGE)
    shown = sort_standings(chosen, order, facts)[paging.shown]
    facts = facts if order.column in NEEDS_LEDGER else load_facts(shown)
    # A list by age needs the age of every line.
    lookout.finder.want(each.name for each in (chosen if order.column is PipelineColumn.OLDEST else shown))
    query = {"dag": dag or "", "q": q or "", "state": state or "", "sort": "" if order == WORST_FIRST else str(order)}
    # The error of a connection that only others use would name what the user may not see.
    known = {line for each in mine for line in each.health.detail.split("\n")}
    problems = [each for each in (sight.value.problems if sight.value else ()) if set(each.split("\n")) <= known]
    problems += [sight.error] if sight.error else []
    return show(
        request,
        "pipelines.html.j2",
        view=sight.value,
        found_at=sight.found_at,
        problems=problems,
        total=len(mine),
        found=count_standings(chosen, mine) + (f" in {dag}" if dag else ""),
        counts=count_states(named),
        named=len(named),
        rows=fill_rows(shown, facts),
        query=query,
        order=order,
        keys=PipelineColumn,
        paging=paging,
        to_page=lambda number: request.url.path + write_query(query, page=number),
    )


def read_partitions(q: Text = None, sort: Text = None, page: Page = 1) -> PartitionQuery:
    """Return which partitions an address asks for. Raises ConfigurationError."""
    return PartitionQuery(q or "", read_order(sort, PartitionColumn, BY_NUMBER), page)


def read_batches(batches: Text = None, state: Text = None, batches_page: Page = 1, before: Offset = None) -> BatchQuery:
    """Return which batches an address asks for. Raises ConfigurationError."""
    return BatchQuery(read_order(batches, BatchColumn, NEWEST_FIRST), state or "", batches_page, before)


def show_pipeline(
    request: Request,
    dag_id: Pipeline,
    visitor: OfVisitor,
    partitions: Annotated[PartitionQuery, Depends(read_partitions)],
    wanted: Annotated[BatchQuery, Depends(read_batches)],
) -> Response:
    """Show one pipeline. A DAG that is called like none has this tab, too, and leads to what stands in it."""
    try:
        config = load(dag_id)
    except HTTPException:
        leads = lead_from_dag(request, dag_id)
        if leads is None:
            raise
        return leads
    host = visitor.require(Verb.LOOK)
    with keep_connections():
        view = look_at_pipeline(request.app.state.lookout, config, partitions, wanted)
    of_partitions = {"q": partitions.text, "sort": "" if partitions.order == BY_NUMBER else str(partitions.order)}
    of_batches = {"state": wanted.state, "batches": "" if wanted.order == NEWEST_FIRST else str(wanted.order)}
    return show(
        request,
        "pipeline.html.j2",
        view=view,
        host=host,
        now=view.freshness.now,
        rights=visitor.verbs,
        switched_off=bool(find_switched_off([host.dag_id])),
        threats=warn(view.state.health.threats, view.freshness.now),
        urgent=URGENT,
        kinds=[each for each in Kind if any(each in strip.counts for strip in view.strips)],
        states=[BatchState.PUBLISHED, BatchState.BLOCKED, BatchState.DISCARDED, COMPARED],
        partitions=partitions,
        wanted=wanted,
        partition_keys=PartitionColumn,
        batch_keys=BatchColumn,
        filtered_from=FILTERED_FROM,
        arranged=BATCHES_ARRANGED,
        of_partitions=of_partitions,
        of_batches=of_batches,
        to_page=lambda number: (
            request.url.path + write_query(of_partitions, of_batches, page=number, anchor="#partitions")
        ),
        to_batches_page=lambda number: (
            request.url.path + write_query(of_partitions, of_batches, batches_page=number, anchor="#batches")
        ),
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
        raise HTTPException(status.HTTP_404_NOT_FOUND, f"{dag_id} has no position in this partition.")
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
    request: Request,
    dag_id: Pipeline,
    batch_id: BatchId,
    visitor: OfVisitor,
    *,
    page: Page = 1,
    quarantine: Page = 1,
    payloads: bool = False,
) -> HTMLResponse:
    """Show one batch, with keys, values and whole errors if they are asked for. The ledger keeps who has looked."""
    may = visitor.verbs
    if payloads:
        visitor.require(Verb.SEE_PAYLOADS)
    config = load(dag_id)
    with keep_connections():
        view = _look_at_batch(config, batch_id, page, quarantine)
    batch_id = view.history.batch.batch_id
    if payloads:
        places = [each.place for each in view.quarantine.lines]
        actor, errors = Actor(visitor.user.get_name()), len(view.quoted)
        record_look(ledger_dsn(config), dag_id, actor, places, batch_id=batch_id, errors=errors)
    pages: dict[str, Any] = {"page": page, "quarantine": quarantine}
    if payloads:
        pages["payloads"] = "yes"
    return show(
        request,
        "batch.html.j2",
        view=view,
        can_see_payloads=Verb.SEE_PAYLOADS in may,
        has_payloads=payloads,
        to_payloads=f"?{urlencode({**pages, 'payloads': 'yes'})}",
        ways={text: kind for text, kind in _ways_on(view).items() if OFFERS[kind].verb in may},
        has_docs=_has_docs(dag_id, batch_id),
        to_page=lambda number: f"?{urlencode({**pages, 'page': number})}#balance",
        to_quarantine_page=lambda number: f"?{urlencode({**pages, 'quarantine': number})}#quarantine",
    )


def _look_at_batch(config: PipelineConfig, batch_id: int, page: int = 1, quarantine_page: int = 1) -> BatchView:
    """Return a batch of this pipeline, or its span. Raises UnknownBatchError, ServiceUnavailableError."""
    dsn = ledger_dsn(config)
    history = load_batch_history(dsn, batch_id, config.name)
    batch_id = history.batch.batch_id
    paging = turn_to(page, len(history.ranges), RANGES_ON_PAGE)
    total = list_quarantine(dsn, config.name, 0, batch_id).total
    quarantine_paging = turn_to(quarantine_page, total, QUARANTINE_ON_PAGE)
    skip = quarantine_paging.shown.start
    return BatchView(
        history=history,
        ranges=history.ranges[paging.shown],
        paging=paging,
        quarantine=list_quarantine(dsn, config.name, QUARANTINE_ON_PAGE, batch_id, skip),
        quarantine_paging=quarantine_paging,
        quoted=load_quoted(dsn, batch_id),
    )


def _ways_on(view: BatchView) -> dict[str, DecisionKind]:
    """Return what a person can do with the batch, each with its place on the page of decisions."""
    batch = view.history.batch
    ways = {}
    if batch.state is BatchState.BLOCKED and not batch.is_dry_run and may_be_accepted(view.history.checks):
        ways["Accept"] = DecisionKind.ACCEPT
    if not batch.state.is_final and not batch.is_dry_run:
        ways |= {"Take again": DecisionKind.RETRY}
        if batch.state is not BatchState.COMMITTING:
            ways |= {"Discard": DecisionKind.DISCARD}
    if batch.state is BatchState.PUBLISHED:
        ways["Publish again"] = DecisionKind.REPLAY
    if view.quarantine.total:
        ways["Publish quarantine again"] = DecisionKind.QUARANTINE_REPLAY
    return ways


def _has_docs(pipeline: str, batch_id: int) -> bool:
    page = DocsFolder.of_environment().find_page(pipeline, str(batch_id))
    return page is not None and page.is_file()


def show_schema(request: Request, dag_id: Pipeline, *, from_topic: bool = False) -> HTMLResponse:
    """Show how the declared columns differ from the table's, and from the newest records if they are asked for."""
    config = load(dag_id)
    contract, error = None, None
    with keep_connections():
        dsn = ledger_dsn(config)
        versions, used = list_schemas(dsn, dag_id), list_used_schemas(dsn, dag_id)
        try:
            contract = compare_schema(config, RECORDS_COMPARED if from_topic else 0)
        except BatchledgerError as refused:
            error = str(refused)
    return show(
        request,
        "schema.html.j2",
        config=config,
        declared=write_columns(config.source.columns),
        contract=contract,
        error=error,
        versions=list_changes(versions),
        used=used,
        looks=_LOOKS,
    )
