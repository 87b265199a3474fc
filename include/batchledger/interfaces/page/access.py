"""Who may see and do what with a pipeline: what Airflow lets the user do, by the verbs of ``rights``.

Nothing here is open without a login.

Airflow guards no route of a plugin, so every route asks for a user itself. A request that changes something has to come
from a page of the same origin, in a browser that says so, or with a header that no foreign page can send.
"""

from collections.abc import Collection
from typing import Any
from urllib.parse import unquote, urlsplit

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.models.resource_details import AccessView, DagAccessEntity, DagDetails
from airflow.api_fastapi.core_api.security import requires_access_dag, requires_access_view
from airflow.configuration import conf
from airflow.models.dag import DagModel
from fastapi import Depends, HTTPException, Request, status

from batchledger.interfaces.page.rights import SECTION, SETTINGS, Resource, Right, Verb, parse_right

TO_ENTER = Depends(requires_access_view(AccessView.WEBSITE))
TO_READ = Depends(requires_access_dag("GET"))
TO_ACT = Depends(requires_access_dag("POST", DagAccessEntity.RUN))


def list_readable(user: Any) -> Collection[str]:
    """Return the ids of the DAGs that the user may read, and so the names of the pipelines."""
    return get_auth_manager().get_authorized_dag_ids(user=user)


def list_rights(user: Any, dag_id: str) -> Collection[Verb]:
    """Return what a user may do, who may read the DAG. Raises ConfigurationError if a setting names no right."""
    details = DagDetails(id=dag_id, team_name=DagModel.get_team_name(dag_id))
    manager = get_auth_manager()
    further = {verb: parse_right(conf.get(SECTION, name, fallback=""), name) for verb, name in SETTINGS.items()}
    if not manager.is_authorized_dag(method="POST", access_entity=DagAccessEntity.RUN, details=details, user=user):
        return {Verb.LOOK}

    def has(right: Right) -> bool:
        match right.resource:
            case Resource.DAG:
                return manager.is_authorized_dag(method=right.method, details=details, user=user)
            case Resource.CONNECTION:
                return manager.is_authorized_connection(method=right.method, user=user)
            case Resource.VIEW:
                return manager.is_authorized_custom_view(method=right.method, resource_name=right.name, user=user)

    return {verb for verb in Verb if (right := further.get(verb)) is None or has(right)}


def require(user: Any, dag_id: str, verbs: Collection[Verb]) -> None:
    """Refuse a user who may not do all of it, with 403."""
    rights = list_rights(user, dag_id)
    for verb in verbs:
        if verb not in rights:
            told = f"You have no right to {verb.replace('_', ' ')} here. Nothing was shown or changed."
            raise HTTPException(status.HTTP_403_FORBIDDEN, told)


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
