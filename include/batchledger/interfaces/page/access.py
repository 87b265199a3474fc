"""Who may see and do what: as much of a pipeline as of its DAG. Nothing here is open to anybody without a login.

Airflow guards no route of a plugin, so every route asks for a user itself. A request that changes something has to come
from a page of the same origin, in a browser that says so, or with a header that no foreign page can send.
"""

from collections.abc import Collection
from typing import Any
from urllib.parse import unquote, urlsplit

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.models.resource_details import AccessView, DagAccessEntity, DagDetails
from airflow.api_fastapi.core_api.security import requires_access_dag, requires_access_view
from airflow.models.dag import DagModel
from fastapi import Depends, HTTPException, Request, status

TO_ENTER = Depends(requires_access_view(AccessView.WEBSITE))
TO_READ = Depends(requires_access_dag("GET"))
TO_ACT = Depends(requires_access_dag("POST", DagAccessEntity.RUN))


def list_readable(user: Any) -> Collection[str]:
    """Return the ids of the DAGs that the user may read, and so the names of the pipelines."""
    return get_auth_manager().get_authorized_dag_ids(user=user)


def may_act(user: Any, dag_id: str) -> bool:
    """Whether the user may trigger the DAG, which lets him act on its pipeline and see values of its records."""
    details = DagDetails(id=dag_id, team_name=DagModel.get_team_name(dag_id))
    return get_auth_manager().is_authorized_dag(
        method="POST", access_entity=DagAccessEntity.RUN, details=details, user=user
    )


def require_own_page(request: Request) -> None:
    """Refuse what a page of another site has sent in the user's name."""
    site = request.headers.get("sec-fetch-site")
    origin = request.headers.get("origin")
    is_own = (
        site == "same-origin"
        if site is not None
        else origin is None or urlsplit(origin).netloc == request.headers.get("host")
    )
    if not is_own or request.headers.get("hx-request") != "true":
        raise HTTPException(status.HTTP_403_FORBIDDEN, "this was not sent by a page of Batchledger")


def require_text(request: Request) -> None:
    """Refuse an address with a character that no database can store, and that is in no name."""
    if "\0" in f"{request.scope['path']}?{unquote(request.url.query)}":
        raise HTTPException(status.HTTP_404_NOT_FOUND, "there is no such page")


AS_TEXT = Depends(require_text)
FROM_OWN_PAGE = Depends(require_own_page)
