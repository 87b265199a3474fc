"""Starts runs as Airflow's own pages do: through its public API, in this process, with the token of who asks.

So the right to trigger, the schema of the form, the audit log and the name of the user are Airflow's.
"""

from collections.abc import Mapping
from typing import Any

import anyio.from_thread
import httpx
from airflow.api_fastapi.auth.managers.base_auth_manager import COOKIE_NAME_JWT_TOKEN
from fastapi import Request

from batchledger.interfaces.page import AIRFLOW
from batchledger.model.errors import DecisionRefusedError, ServiceUnavailableError

_SECONDS = 60.0


def trigger(request: Request, dag_id: str, fields: Mapping[str, Any], run_id: str | None = None) -> str:
    """Start a run now and return its id; one of ``run_id`` that is there already is left as it is.

    To be called in a worker thread that is none of Airflow's, whose routes need their own. Raises DecisionRefusedError
    with what Airflow says, ServiceUnavailableError when it says nothing.
    """
    try:
        return anyio.from_thread.run(_trigger, request, dag_id, dict(fields), run_id)
    except TimeoutError as error:
        raise ServiceUnavailableError(
            f"Airflow has not answered for {_SECONDS:.0f} s. It may have started the run, or not.",
            advice=f"Look at the runs of {dag_id} in Airflow before you ask again.",
        ) from error


async def _trigger(request: Request, dag_id: str, fields: dict[str, Any], run_id: str | None) -> str:
    transport = httpx.ASGITransport(app=request.scope[AIRFLOW])
    address = request.scope["root_path"].removesuffix("/batchledger")
    with anyio.fail_after(_SECONDS):
        async with httpx.AsyncClient(transport=transport, base_url=f"http://airflow{address}") as client:
            answer = await client.post(
                f"/api/v2/dags/{dag_id}/dagRuns",
                json={"logical_date": None, "conf": fields, "dag_run_id": run_id},
                headers=_credentials(request),
            )
    if answer.status_code == httpx.codes.CONFLICT and run_id is not None:
        return run_id
    if answer.is_error:
        raise DecisionRefusedError(
            "Airflow has not started the run. Nothing was changed.",
            why=f"Airflow says: {_detail(answer)}",
            advice=f"Look at the DAG {dag_id} in Airflow, remove the cause, then ask again.",
        )
    return str(answer.json()["dag_run_id"])


def _credentials(request: Request) -> dict[str, str]:
    """Return what tells Airflow who asks: what this request was let in with, a header before a cookie."""
    header, cookie = request.headers.get("authorization"), request.cookies.get(COOKIE_NAME_JWT_TOKEN)
    if header is not None:
        return {"Authorization": header}
    return {} if cookie is None else {"Authorization": f"Bearer {cookie}"}


def _detail(answer: httpx.Response) -> str:
    """Return what Airflow says of a request that it has refused."""
    try:
        detail = answer.json()["detail"]
    except (ValueError, KeyError, TypeError):
        return f"status {answer.status_code}"
    return detail if isinstance(detail, str) else str(detail)
