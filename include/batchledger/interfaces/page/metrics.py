"""The metrics, for Prometheus: of the pipelines and watches whose DAGs the account may read.

A request asks the ledgers for their totals, and Kafka for nothing: it takes the newest look of the overview, and has
the next one begin. So counters never go back, also if several workers of the API server answer in turn.
"""

from dataclasses import replace
from datetime import UTC, datetime

from airflow.api_fastapi.core_api.security import GetUserDep
from fastapi import Request
from fastapi.responses import Response
from prometheus_client.exposition import choose_encoder

from batchledger.interfaces.metrics.families import (
    Families,
    Look,
    build_families,
    build_partition_families,
)
from batchledger.interfaces.metrics.totals import ask_ledgers
from batchledger.interfaces.page.access import list_readable
from batchledger.interfaces.page.lookout import Lookout

# Prometheus gives up after 10 s unless its configuration says otherwise.
FIRST_LOOK_SECONDS = 5.0
# A ledger that has fallen silent since the look would otherwise cost the scrape its 10 s, and all its numbers.
CONNECT_SECONDS = 3


def show_metrics(request: Request, user: GetUserDep, *, partitions: bool = False) -> Response:
    """Write the metrics in the format that the request accepts: OpenMetrics, else Prometheus' text.

    Only the first request of a process waits, ``FIRST_LOOK_SECONDS`` at most, and then says ``batchledger_up 0``.
    """
    lookout: Lookout = request.app.state.lookout
    readable = list_readable(user)
    lookout.finder.want(readable)
    sight = lookout.overview.look(0.0)
    if sight.value is None:
        sight = lookout.overview.look(FIRST_LOOK_SECONDS)
    standings = sight.value.standings if sight.value else ()
    mine = [each for each in standings if each.name in readable]
    pipelines = [each for each in mine if not each.is_watch]
    totals = ask_ledgers({each.name: each.dsn for each in pipelines if each.dsn}, CONNECT_SECONDS)
    counted = tuple(replace(each, totals=totals.get(each.name)) for each in pipelines)
    is_current = sight.value is not None and sight.error is None
    look = Look(
        counted, sight.found_at, is_current, {each.name: each.current_look for each in mine if each.current_look}
    )
    now = datetime.now(UTC)
    families = build_families(look, now) + (build_partition_families(look, now) if partitions else [])
    encode, content_type = choose_encoder(request.headers.get("accept", ""))
    return Response(encode(Families(families)), media_type=content_type)
