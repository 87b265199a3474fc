"""The demo: write sample records into Kafka, trigger the pipeline's DAG, and follow it until it has caught up.

If the target is a table of PostgreSQL, a second DAG runs after each batch and adds up exactly its rows
(``downstream.py``); the demo ends with what it has made.

It is safe to interrupt and to run again: it writes no record twice, the pipeline publishes no record twice, and if
nothing is left to do, it says so and triggers nothing. All guarantees are the pipeline's; this module only asks and
shows.
"""

import shutil
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from rich.console import Console

from batchledger.books.history import BatchHistory, RangeRecord, list_batches, load_batch_history
from batchledger.config.pipeline_file import PipelineConfig
from batchledger.config.places import pipelines_folder
from batchledger.interfaces.cli.display.batches import balance_table, batches_table
from batchledger.lifecycle.platform import Platform
from batchledger.local.airflow_api import AirflowAccount, AirflowApi, Run, open_airflow
from batchledger.local.downstream import Sums, catch_up_sums
from batchledger.local.run_progress import follow, measure_backlog, observe
from batchledger.local.samples.samples import SampleOrder, produce_samples
from batchledger.local.stack.airflow_components import ADMIN, airflow_url
from batchledger.local.stack.home import Home, Ports
from batchledger.looking import ledger_dsn
from batchledger.model.balance import BALANCE_LINES
from batchledger.model.batch import Lane
from batchledger.model.checks import describe_outcomes
from batchledger.model.counting import describe_count
from batchledger.wiring import build_platform

PARTITIONS = 4
PARSE_SECONDS = 180.0
BATCHES_SHOWN = 100
# Writes the pages of the batches (interfaces/airflow/upkeep_dags.py).
DATA_DOCS = "batchledger-data-docs"


PIPELINE_FILES = Path(__file__).parent / "samples"
"""Pipelines of demos that not everybody tries: without their topic they would look broken in every list."""


def add_pipeline_file(pipeline: str) -> None:
    """Put the file of a demo's pipeline into the folder of pipeline files, unless there is one of its name."""
    file, folder = PIPELINE_FILES / f"{pipeline}.yaml", pipelines_folder()
    if file.is_file() and not (folder / file.name).exists():
        shutil.copyfile(file, folder / file.name)


def run_demo(pipeline: PipelineConfig, console: Console) -> int:
    """Feed, trigger, follow, and show the outcome; return the exit code: 1 if a run failed.

    Raises ServiceUnavailableError if a local service does not answer or makes no more progress, or if what the second
    DAG has made differs from the same query over the whole table.
    """
    home, sums = Home.of_project(), choose_sums(pipeline)
    if sums is not None:
        # Airflow reads it while the records are written.
        sums.add_dag(home.more_dags)
    account = AirflowAccount(airflow_url(Ports.choose(home)), ADMIN, home.airflow_password_file)
    fed = produce_samples(pipeline, SampleOrder(partitions=PARTITIONS), console)
    others = [DATA_DOCS] if sums is None else [DATA_DOCS, sums.dag_id]
    held = describe_count(fed.already_there, "record")
    added = describe_count(fed.gained, "was", "were")
    console.print(f"Topic {fed.topic} held {held}; {added} added.", highlight=False)
    with open_airflow(account) as airflow:
        with console.status(f"waiting until Airflow has parsed the DAG {pipeline.name}"):
            for dag_id in (pipeline.name, *others):
                airflow.wait_until_known(dag_id, PARSE_SECONDS)
        # Before the first batch: an event starts no DAG that is switched off.
        for dag_id in others:
            airflow.unpause(dag_id)
        failed = catch_up(airflow, build_platform(pipeline), console)
        if failed is not None:
            _show_failure(airflow, pipeline.name, failed, console)
        _show_batches(pipeline, console)
        if failed is None and sums is not None:
            catch_up_sums(airflow, sums, console)
            for part in sums.show():
                console.print(part, highlight=False)
    _show_addresses(pipeline, account, console)
    return 0 if failed is None else 1


def choose_sums(pipeline: PipelineConfig) -> Sums | None:
    """Return what the second DAG makes of the pipeline's target; None if that is no table of the ledger's database."""
    table = pipeline.sink.ledger_table
    return table and Sums(ledger_dsn(pipeline), table[1])


def catch_up(airflow: AirflowApi, platform: Platform, console: Console) -> Run | None:
    """Trigger the pipeline if there is something to do. Return a run that failed, None otherwise.

    One trigger is enough: a run that leaves records behind starts the next one.
    """
    name = platform.rules.name
    runs = airflow.list_runs(name)
    if measure_backlog(platform).unread == 0 and not any(run.is_active for run in runs):
        console.print(f"[green]Nothing to do[/]: {name} has published every record of its topic.", highlight=False)
        return None
    airflow.unpause(name)
    console.print(f"Triggered run {airflow.trigger(name).run_id}.", highlight=False, soft_wrap=True)
    over = {run.run_id for run in runs if not run.is_active}
    return follow(partial(observe, airflow, platform, over), console)


def add_up_ranges(histories: Sequence[BatchHistory]) -> list[RangeRecord]:
    """Return one range for each partition with the sums of its balances; published ranges have no gaps (I1)."""
    total_by_partition: dict[tuple[str, int], RangeRecord] = {}
    for each in (record for history in histories for record in history.ranges):
        key = (each.topic, each.partition)
        total_by_partition[key] = _add(total_by_partition[key], each) if key in total_by_partition else each
    return [total for _, total in sorted(total_by_partition.items())]


def _add(one: RangeRecord, other: RangeRecord) -> RangeRecord:
    sums = {
        line: (getattr(one, line) or 0) + (getattr(other, line) or 0)
        for line in (*BALANCE_LINES, "holes", "unexplained")
    }
    start, until = min(one.start, other.start), max(one.until, other.until)
    return RangeRecord(topic=one.topic, partition=one.partition, start=start, until=until, **sums)


def _show_failure(airflow: AirflowApi, dag_id: str, run: Run, console: Console) -> None:
    """Print each failed task with its error and the page of its log."""
    console.print(f"[bold red]Run {run.run_id} failed.[/]", highlight=False, soft_wrap=True)
    for task in airflow.list_tasks(dag_id, run.run_id):
        if task.state == "failed":
            error = airflow.read_error(dag_id, run.run_id, task)
            console.print(f"{task.task_id}: {error}", markup=False, highlight=False, soft_wrap=True)
            console.print(f"Log: {airflow.log_url(dag_id, run.run_id, task)}", highlight=False, soft_wrap=True)


def _show_batches(pipeline: PipelineConfig, console: Console) -> None:
    """Print batches, balance and checks."""
    dsn = ledger_dsn(pipeline)
    batches = list_batches(dsn, pipeline.name, BATCHES_SHOWN)
    # The offsets of a replay are counted already.
    live = [each.batch_id for each in batches if each.state == "published" and each.lane == Lane.LIVE]
    published = [load_batch_history(dsn, batch_id) for batch_id in live]
    checks = [check for history in published for check in history.checks]
    console.print(batches_table(pipeline.name, batches), highlight=False)
    console.print(balance_table(add_up_ranges(published)), highlight=False)
    console.print(f"{describe_outcomes(checks)}.", highlight=False)


def _show_addresses(pipeline: PipelineConfig, account: AirflowAccount, console: Console) -> None:
    """Print where to look further."""
    console.print(f"Target: {pipeline.sink.target}", highlight=False, soft_wrap=True)
    console.print(f"Airflow: {account.url}/dags/{pipeline.name}", highlight=False, soft_wrap=True)
    console.print(f"Login: {account.user}, password in {account.password_file}", highlight=False, soft_wrap=True)
