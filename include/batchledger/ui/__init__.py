"""What Batchledger adds to Airflow's API server, under ``/batchledger``."""

from functools import cache
from typing import Any


async def serve(scope: Any, receive: Any, send: Any) -> None:
    """Answer a request; ASGI. What it takes is imported by the first one, as every Airflow process loads plugins."""
    await _app()(scope, receive, send)


@cache
def _app() -> Any:
    from batchledger.ui.app import build_app

    return build_app()
