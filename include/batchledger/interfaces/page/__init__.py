"""What Batchledger adds to Airflow's API server, under ``/batchledger``."""

from functools import cache
from typing import Any

AIRFLOW = "batchledger.airflow"
"""Where the scope of a request holds Airflow's own application."""


async def serve(scope: Any, receive: Any, send: Any) -> None:
    """Answer a request; ASGI. What it takes is imported by the first one, as every Airflow process loads plugins.

    The scope comes with Airflow's own application, through which runs are started.
    """
    await _app()({**scope, AIRFLOW: scope.get("app")}, receive, send)


@cache
def _app() -> Any:
    from batchledger.interfaces.page.app import build_app

    return build_app()
