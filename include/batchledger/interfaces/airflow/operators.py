"""The operators of a pipeline: publish; or all steps of a batch in one task.

Each takes a pipeline or its name. Nothing heavy is imported here, because DAG files are parsed through this module.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from airflow.sdk import AssetAlias, BaseOperator
from airflow.sdk.exceptions import AirflowSkipException
from typing_extensions import override

from batchledger.config.glance import find_aliases
from batchledger.interfaces.airflow import assets, lineage
from batchledger.model.runs import write_host_tags

if TYPE_CHECKING:
    from airflow.providers.openlineage.extractors import OperatorLineage
    from airflow.sdk import Context
    from airflow.sdk.definitions._internal.expandinput import MappedArgument
    from airflow.sdk.types import RuntimeTaskInstanceProtocol
    from typing_extensions import TypeIs

    from batchledger.config.pipeline_file import PipelineConfig
    from batchledger.model.batch import Batch
    from batchledger.model.published import PublishedBatch

Named: TypeAlias = "PipelineConfig | str | MappedArgument"
"""A pipeline; its name; or, in a mapped group, what will be its name."""


def is_known(pipeline: Named) -> "TypeIs[PipelineConfig | str]":
    """Return whether it is a pipeline or a name. In a mapped group, Airflow has the name when the tasks run."""
    return isinstance(pipeline, str) or hasattr(pipeline, "sink")


class _ToldOperator(BaseOperator):
    """Has the target of its pipeline as outlet, and tells Airflow and OpenLineage of each batch that is published."""

    def __init__(
        self, *, pipeline: Named, among: Sequence[str] = (), place: str | None = None, **settings: Any
    ) -> None:
        wanted: Sequence[Named] = among or [pipeline]
        targets, sources = _find_assets(wanted)
        inlets, outlets = (list(settings.pop(each, None) or ()) for each in ("inlets", "outlets"))
        super().__init__(inlets=[*sources, *inlets], outlets=[*targets, *outlets], **settings)
        lineage.silence_task(self)
        self.place = self.find_place() if place is None else place
        if self.has_dag():  # type: ignore[no-untyped-call]
            names = (each if isinstance(each, str) else each.name for each in filter(is_known, wanted))
            self.dag.tags |= write_host_tags(self.dag.dag_id, self.place, names)
        # In a mapped group Airflow has put the name here when the task runs.
        self.pipeline = cast("PipelineConfig | str", pipeline)
        self.published: PublishedBatch | None = None

    def find_place(self) -> str:
        """Return how the ledger calls the place of this task within its DAG: by its group."""
        return str(self.task_id.rpartition(".")[0])

    def tell(
        self, context: "Context", pipeline: "PipelineConfig", published: "PublishedBatch", *, is_of_before: bool = False
    ) -> None:
        """Let the target's asset have one event of the batch, and lineage hear of it.

        One ``is_of_before`` if another task, or an earlier try, has published it.
        """
        self.published = published
        target = assets.name_target(pipeline)
        if target not in self.outlets:
            self.log.info("%s has no event: its pipeline was not known when the DAG was read", published.batch.label)
        elif not assets.announce(context, target, published, is_of_before=is_of_before):
            self.log.info("the event of %s is there already", published.batch.label)
        lineage.let_through(self)

    def get_openlineage_facets_on_complete(
        self, ti: "RuntimeTaskInstanceProtocol"
    ) -> "OperatorLineage[Any, Any] | None":
        """Return what OpenLineage hears of the batch. Airflow's provider calls it when the task has ended."""
        from batchledger.interfaces.airflow.lineage_facets import describe_lineage, send_start

        send_start(ti)
        return None if self.published is None else describe_lineage(self.published)


class PublishOperator(_ToldOperator):
    """Make rows and offsets visible together; the target's asset then has one event of the batch."""

    @override
    def execute(self, context: "Context") -> dict[str, Any]:
        """Publish the batch of the run, and return what ``describe_taken`` says of it.

        In a group it runs also if there was nothing to do, says so, and is skipped.
        """
        from batchledger.interfaces.airflow import tasks, terms
        from batchledger.interfaces.airflow.batch_of_run import find_idle_reason, require_batch
        from batchledger.interfaces.airflow.tracing import tell_batch, tell_published, trace_step
        from batchledger.model.batch import Step

        pipeline = tasks.load(self.pipeline)
        idle = find_idle_reason()
        if idle is not None:
            context["ti"].xcom_push(key="return_value", value=describe_taken(pipeline.name, ()))
            raise terms.skip(idle)
        with terms.in_airflow_terms():
            batch_id = require_batch(pipeline)
        with trace_step(Step.PUBLISH, pipeline.name, batch_id) as span:
            batch, published = tasks.publish(pipeline, batch_id)
            tell_batch(span, batch)
            if published is None:
                # at_most_once has lost them, or another process is about to commit them.
                self.log.warning("%s has no rows, so it has no event", batch.label)
                return describe_taken(pipeline.name, (), batch)
            tell_published(span, published)
            self.tell(context, pipeline, published)
        return describe_taken(pipeline.name, (published,))


class BatchledgerOperator(_ToldOperator):
    """All steps of a batch of a pipeline in one task; with ``until_caught_up`` of one batch after the other.

    The next try goes on where one has ended. It is skipped if there is nothing to do. What it returns counts each batch
    that this run has published, also in an earlier try. ``pipeline`` is the name of a pipeline file, or a pipeline.
    ``place`` is how the ledger calls this task within its DAG: by its id, if it is not given.
    """

    def __init__(self, *, pipeline: Named, until_caught_up: bool = False, **settings: Any) -> None:
        super().__init__(pipeline=pipeline, **settings)
        self.until_caught_up = until_caught_up

    @override
    def find_place(self) -> str:
        """Return the id of the task, because all steps are its own."""
        return str(self.task_id)

    @override
    def execute(self, context: "Context") -> dict[str, Any]:
        """Take one batch, or all until nothing is left that was readable when the last one was planned."""
        from batchledger.interfaces.airflow import tasks

        pipeline = tasks.load(self.pipeline)
        told = {each.batch.batch_id: each for each in tasks.list_taken(pipeline)}
        for each in told.values():
            self.tell(context, pipeline, each, is_of_before=True)
        try:
            takes_more = self.until_caught_up and tasks.may_take_more(pipeline)
            goes_on = not told or takes_more
            while goes_on:
                batch, published = tasks.take_next(pipeline)
                if published is not None:
                    told[batch.batch_id] = published
                    self.tell(context, pipeline, published)
                goes_on = takes_more and tasks.explain_what_is_left(pipeline, batch) is None
        except AirflowSkipException:
            if not told:
                context["ti"].xcom_push(key="return_value", value=describe_taken(pipeline.name, ()))
                raise
        finally:
            self._report(pipeline)
        return describe_taken(pipeline.name, [*told.values()])

    def _report(self, pipeline: "PipelineConfig") -> None:
        """Tell people what has begun and what is over; the batch is as it was, whatever becomes of that."""
        from batchledger.interfaces.airflow import tasks

        try:
            tasks.report(pipeline)
        except Exception as error:  # noqa: BLE001 -- The batch decides what becomes of the task.
            self.log.warning("alerts could not be sent: %s", error)


def report_run(pipeline: "PipelineConfig", context: "Context") -> None:
    """Tell people what has begun and what is over, and leave the note that Airflow shows beside the run."""
    from batchledger.interfaces.airflow import tasks, terms
    from batchledger.interfaces.airflow.batch_of_run import NOTE, describe_present_run

    tasks.report(pipeline)
    with terms.in_airflow_terms():
        note = describe_present_run(pipeline)
    if note:
        tasks.logger.info("%s", note)
        context["ti"].xcom_push(key=NOTE, value=note)


def describe_taken(
    pipeline: str, published: "Sequence[PublishedBatch]", without_rows: "Batch | None" = None
) -> dict[str, Any]:
    """Return what a task says of the batches that its run has published, as JSON: ``load.batch`` in a DAG.

    ``ranges`` are the first ones of each, as an event has them.
    """
    events = [each.to_event() for each in published]
    lost = () if without_rows is None else (without_rows.batch_id,)
    sums = {each: sum(event[each] for event in events) for each in ("rows", "duplicates", "quarantined", "offsets")}
    return {
        "pipeline": pipeline,
        "batch_ids": [*(each["batch_id"] for each in events), *lost],
        **sums,
        "ranges": [each for event in events for each in event["ranges"]],
        "nothing_to_do": not events and not lost,
    }


def _find_assets(pipelines: Sequence[Named]) -> tuple[list[AssetAlias], list[AssetAlias]]:
    """Return targets and sources of the pipelines that are known, or whose names are, while Airflow reads the DAG."""
    targets, sources = list[AssetAlias](), list[AssetAlias]()
    for each in filter(is_known, pipelines):
        target, topics = find_aliases(each) if isinstance(each, str) else (each.sink.alias, each.source.aliases)
        targets += [] if target is None else [AssetAlias(target)]
        sources += map(AssetAlias, topics)
    return targets, sources
