"""The demo's DAG that reads each batch: its file, whether it has added up every batch, and what came out.

The DAG is the example of docs/guides/downstream.md. It may run more often than it has to, so what counts is its table:
the demo compares it with the table of the flights, and never counts runs.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, sleep

from psycopg import sql
from rich.console import Console
from rich.table import Table

from batchledger.database.sessions import connect
from batchledger.interfaces.cli.printing import new_table
from batchledger.local.airflow_api import AirflowApi, Run
from batchledger.local.stack.home import write_private
from batchledger.model.counting import describe_count
from batchledger.model.errors import ServiceUnavailableError

POLL_SECONDS = 0.5
QUIET_SECONDS = 30.0
"""How long no run is active, and nothing changes, before an event is taken for missing."""
STALL_SECONDS = 300.0
CARRIERS_SHOWN = 5

_FILE = Path(__file__).parent / "samples" / "flights_by_carrier.py"
# Delays are whole minutes, so sums of them are exact, whatever their order.
_DIFFERING = sql.SQL("""
    with held as (select batch_id, carrier, arrived, minutes_late from {sums}),
    expected as (select _batch_id, carrier, count(arr_delay), sum(arr_delay) from {table} group by 1, 2)
    select distinct batch_id
    from ((table held except table expected) union all (table expected except table held)) differing order by 1
""")
_EACH_BATCH = sql.SQL("select distinct _batch_id from {table} order by 1")
_LATEST = sql.SQL("""
    select carrier, sum(arrived)::bigint, sum(minutes_late) / sum(arrived)
    from {sums} group by 1 having sum(arrived) > 0 order by 3 desc
""")
_SIZE = sql.SQL("select count(*), count(distinct _batch_id) from {table}")


@dataclass(frozen=True, slots=True)
class Sums:
    """What the DAG makes of a table of flights in the schema ``public``: one line a batch and carrier."""

    dsn: str
    table: str

    @property
    def dag_id(self) -> str:
        """The id of the DAG, and the name of the table that it writes."""
        return f"{self.table}_by_carrier"

    def add_dag(self, folder: Path) -> None:
        """Write the file of the DAG, in place of one that is there, which may be of an older package."""
        text = _FILE.read_text(encoding="utf-8").replace("flights", self.table)
        write_private(folder / f"{self.dag_id}.py", text)

    def find_differing(self) -> tuple[int, ...]:
        """Return the batches whose lines are not what the same query finds in the whole table now."""
        with connect(self.dsn) as connection:
            (held,) = connection.execute("select to_regclass(%s)", (f"public.{self.dag_id}",)).fetchone() or (None,)
            query = _EACH_BATCH if held is None else _DIFFERING
            return tuple(batch_id for (batch_id,) in connection.execute(self._name(query)))

    def show(self) -> list[Table | str]:
        """Return the carriers whose planes arrive latest, and how much of the table that is."""
        with connect(self.dsn) as connection:
            carriers = connection.execute(self._name(_LATEST)).fetchall()
            rows, batches = connection.execute(self._name(_SIZE)).fetchone() or (0, 0)
        table = new_table(f"{self.dag_id}: the latest of {len(carriers)} carriers", "carrier")
        for column in ("flights arrived", "mean minutes late"):
            table.add_column(column, justify="right")
        for carrier, arrived, minutes in carriers[:CARRIERS_SHOWN]:
            table.add_row(carrier, f"{arrived:,}", f"{minutes:.1f}")
        told = f"Made from {describe_count(batches, 'batch', 'batches')}, each read by its _batch_id."
        return [table, f"{told} The same query over all {describe_count(rows, 'row')} gives the same."]

    def _name(self, query: sql.SQL) -> sql.Composed:
        return query.format(table=sql.Identifier("public", self.table), sums=sql.Identifier("public", self.dag_id))


Look = Callable[[], tuple[tuple[int, ...], Sequence[Run]]]
"""Returns the batches that differ, and the runs of the DAG."""


def catch_up_sums(airflow: AirflowApi, sums: Sums, console: Console) -> None:
    """Wait until the DAG has added up every batch.

    A batch that was published before the DAG was there has started no run, and Airflow may keep an event until the next
    one comes. Then the demo says so, and triggers a run, which adds up every batch. Raises ServiceUnavailableError if
    batches still differ after it.
    """

    def look() -> tuple[tuple[int, ...], Sequence[Run]]:
        # In this order: a run that ends between both looks is not over in either of them.
        runs = airflow.list_runs(sums.dag_id)
        return sums.find_differing(), runs

    with console.status(f"waiting until {sums.dag_id} has added up every batch"):
        differing = settle(look)
        if differing:
            run = airflow.trigger(sums.dag_id)
            console.print(
                f"No run of {sums.dag_id} has added up {_name_batches(differing)}. A batch that was published without "
                f"Airflow, or before the DAG was there, starts none. Airflow may also keep an event for the next. "
                f"Triggered run {run.run_id}, which adds up every batch.",
                highlight=False,
                soft_wrap=True,
            )
            differing = settle(look)
    if differing:
        raise ServiceUnavailableError(
            f"{sums.dag_id} differs from {sums.table} in {_name_batches(differing)}, and no run mends it.",
            why="The log of its newest run says more.",
            advice=f"Look at the run: {airflow.url}/dags/{sums.dag_id}\nThen go on: batchledger demo",
            subject=sums.dag_id,
        )


def settle(look: Look) -> tuple[int, ...]:
    """Wait until no batch differs, or nothing moves any more; return the batches that differ."""
    latest, moved_at = None, monotonic()
    while True:
        differing, runs = look()
        if not differing:
            return ()
        seen = differing, [(run.run_id, run.state) for run in runs]
        patience = STALL_SECONDS if any(run.is_active for run in runs) else QUIET_SECONDS
        if seen != latest:
            latest, moved_at = seen, monotonic()
        elif monotonic() - moved_at > patience:
            return differing
        sleep(POLL_SECONDS)


def _name_batches(batch_ids: Sequence[int]) -> str:
    names = ", ".join(map(str, batch_ids))
    return f"batch {names}" if len(batch_ids) == 1 else f"batches {names}"
