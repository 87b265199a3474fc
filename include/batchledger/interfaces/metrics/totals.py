"""The totals of many pipelines: one question to each ledger, as metrics need them."""

from collections.abc import Mapping

from psycopg.conninfo import make_conninfo

from batchledger.database.sessions import keep_connections
from batchledger.ledger.totals import PipelineTotals, load_totals
from batchledger.model.errors import BatchledgerError


def ask_ledgers(dsn_by_pipeline: Mapping[str, str], connect_seconds: int | None = None) -> dict[str, PipelineTotals]:
    """Return the totals by pipeline; without the pipelines of a ledger that does not answer.

    ``connect_seconds``: how long each may take to answer a new connection, instead of what its Airflow connection says.
    """
    found: dict[str, PipelineTotals] = {}
    with keep_connections():
        for dsn in dict.fromkeys(dsn_by_pipeline.values()):
            names = [name for name, own in dsn_by_pipeline.items() if own == dsn]
            try:
                # A changed text would be another connection than the one that is kept.
                asked = dsn if connect_seconds is None else make_conninfo(dsn, connect_timeout=connect_seconds)
                found.update(load_totals(asked, names))
            except BatchledgerError:
                # The state of these pipelines says so.
                continue
    return found
