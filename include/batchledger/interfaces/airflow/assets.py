"""The target of a pipeline as an asset of Airflow: what a DAG file names, and the event of a published batch.

A DAG file is parsed without a connection, so it names the place of an asset by the pipeline file alone: an alias, such
as ``warehouse/public.orders``. The task that has published a batch knows the URI, and its event goes to the asset of
that URI. Imports nothing heavy, because DAG files are parsed through this module.
"""

from typing import TYPE_CHECKING

from airflow.sdk import Asset, AssetAlias
from airflow.sdk.execution_time.context import InletEventsAccessor

if TYPE_CHECKING:
    from airflow.sdk import Context

    from batchledger.config.pipeline_file import PipelineConfig
    from batchledger.model.published import PublishedBatch


def name_target(pipeline: "PipelineConfig") -> AssetAlias:
    """Return the alias of the pipeline's target: its connection, and the table or topic there."""
    return AssetAlias(pipeline.sink.alias)


def announce(
    context: "Context", target: AssetAlias, published: "PublishedBatch", *, is_of_before: bool = False
) -> bool:
    """Let the success of this task be the one event of a batch; return whether it is.

    Airflow stores the event with the success of the task, or neither. If an earlier try of the task has succeeded, for
    example before a person cleared it, its event is there, and there is no second one. A batch ``is_of_before`` if it
    may have its event from another task of the run.
    """
    asset = Asset(published.target.uri)
    if (is_of_before or context["ti"].try_number > 1) and _is_announced(context, target, asset, published):
        return False
    context["outlet_events"][target].add(asset, extra=dict(published.to_event()))
    return True


def _is_announced(context: "Context", target: AssetAlias, asset: Asset, published: "PublishedBatch") -> bool:
    """Ask Airflow for the event of the batch. The ones of other batches with this asset lie around it.

    An event of this run is younger than the run, by Airflow's clock alone. The ledger's clock may be another.
    """
    batch = published.batch
    events = InletEventsAccessor(alias_name=target.name).after(context["dag_run"].run_after.isoformat())
    wanted = (asset.uri, batch.pipeline, batch.batch_id)
    told = [(each.asset.uri, each.extra or {}) for each in events]
    return wanted in [(uri, extra.get("pipeline"), extra.get("batch_id")) for uri, extra in told]
