"""Who may see and do what with a pipeline: what Airflow lets the user do with its DAG, by the verbs of ``rights``.

Nothing here is open without a login. A user may read or trigger a pipeline who may read or trigger a DAG that hosts it.

Airflow guards no route of a plugin, so every route asks for a user itself. A request that changes something has to come
from a page of the same origin, in a browser that says so, or with a header that no foreign page can send.
"""

from collections.abc import Collection
from typing import Annotated, Any
from urllib.parse import unquote, urlsplit

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.models.resource_details import AccessView, DagAccessEntity, DagDetails
from airflow.api_fastapi.core_api.security import GetUserDep, requires_access_view
from airflow.configuration import conf
from airflow.models.dag import DagModel
from fastapi import Depends, HTTPException, Request, status
from fastapi import Path as InPath

from batchledger.interfaces.page.airflow_state import HostDag, find_hosts, list_hosted
from batchledger.interfaces.page.rights import SECTION, SETTINGS, Resource, Right, Verb, parse_right

TO_ENTER = Depends(requires_access_view(AccessView.WEBSITE))
Pipeline = Annotated[str, InPath(alias="dag_id")]


def list_readable(user: Any) -> Collection[str]:
    """Return the names of the pipelines that the user may read."""
    dag_ids = set(get_auth_manager().get_authorized_dag_ids(user=user))
    hosted = find_hosts(list_hosted(dag_ids))
    return (dag_ids - hosted.keys()) | {
        name for name, hosts in hosted.items() if dag_ids & {each.dag_id for each in hosts}
    }


def find_host(user: Any, pipeline: str) -> HostDag | None:
    """Return the DAG whose rights hold: the first that the user may trigger, or else may read; None without one."""
    readable = [each for each in find_hosts([pipeline])[pipeline] if _may_read(user, each)]
    return next((each for each in readable if _may_trigger(user, each)), next(iter(readable), None))


def require_reader(user: GetUserDep, pipeline: Pipeline) -> None:
    """Refuse a user who may read no DAG of the pipeline, with 403."""
    if find_host(user, pipeline) is None:
        raise HTTPException(status.HTTP_403_FORBIDDEN, "Forbidden")


def require_operator(user: GetUserDep, pipeline: Pipeline) -> None:
    """Refuse a user who may read and trigger no DAG of the pipeline, with 403."""
    host = find_host(user, pipeline)
    if host is None or not _may_trigger(user, host):
        raise HTTPException(status.HTTP_403_FORBIDDEN, "Forbidden")


def list_rights(user: Any, pipeline: str) -> Collection[Verb]:
    """Return what a user may do, who may read the pipeline. Raises ConfigurationError if a setting names no right."""
    return _list_rights(user, find_host(user, pipeline))


def require(user: Any, pipeline: str, verbs: Collection[Verb]) -> HostDag:
    """Refuse a user who may not do all of it, with 403; return the DAG that gives the right."""
    host = find_host(user, pipeline)
    rights = _list_rights(user, host)
    missing = next((each for each in verbs if each not in rights), None if host else Verb.LOOK)
    if host is None or missing is not None:
        told = f"You have no right to {str(missing).replace('_', ' ')} here. Nothing was shown or changed."
        raise HTTPException(status.HTTP_403_FORBIDDEN, told)
    return host


def _list_rights(user: Any, host: HostDag | None) -> Collection[Verb]:
    further = {verb: parse_right(conf.get(SECTION, name, fallback=""), name) for verb, name in SETTINGS.items()}
    if host is None or not _may_trigger(user, host):
        return {Verb.LOOK}
    details, manager = _describe(host), get_auth_manager()

    def has(right: Right) -> bool:
        match right.resource:
            case Resource.DAG:
                return manager.is_authorized_dag(method=right.method, details=details, user=user)
            case Resource.CONNECTION:
                return manager.is_authorized_connection(method=right.method, user=user)
            case Resource.VIEW:
                return manager.is_authorized_custom_view(method=right.method, resource_name=right.name, user=user)

    return {verb for verb in Verb if (right := further.get(verb)) is None or has(right)}


def _describe(host: HostDag) -> DagDetails:
    return DagDetails(id=host.dag_id, team_name=DagModel.get_team_name(host.dag_id))


def _may_read(user: Any, host: HostDag) -> bool:
    return get_auth_manager().is_authorized_dag(method="GET", details=_describe(host), user=user)


def _may_trigger(user: Any, host: HostDag) -> bool:
    return get_auth_manager().is_authorized_dag(
        method="POST", access_entity=DagAccessEntity.RUN, details=_describe(host), user=user
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


TO_READ = Depends(require_reader)
TO_ACT = Depends(require_operator)
AS_TEXT = Depends(require_text)
FROM_OWN_PAGE = Depends(require_own_page)
