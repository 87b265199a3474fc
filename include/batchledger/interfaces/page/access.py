"""Who may see and do what with a pipeline: what Airflow lets the user do with its DAG, by the verbs of ``rights``.

Nothing here is open without a login. A user may read or trigger a pipeline who may read or trigger a DAG that hosts it.

Airflow guards no route of a plugin, so every route asks for a user itself. A request that changes something has to come
from a page of the same origin, in a browser that says so, or with a header that no foreign page can send.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
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
from batchledger.interfaces.page.rights import SECTION, SETTINGS, Method, Resource, Right, Verb, parse_right

TO_ENTER = Depends(requires_access_view(AccessView.WEBSITE))
Pipeline = Annotated[str, InPath(alias="dag_id")]


def list_readable(user: Any) -> Collection[str]:
    """Return the names of the pipelines that the user may read."""
    dag_ids = set(get_auth_manager().get_authorized_dag_ids(user=user))
    hosted = find_hosts(list_hosted())
    return (dag_ids - hosted.keys()) | {
        name for name, hosts in hosted.items() if dag_ids & {each.dag_id for each in hosts}
    }


@dataclass(frozen=True)
class Visitor:
    """A user at a pipeline: the DAGs of it that he may read, and what he may do there; first those he may trigger."""

    user: Any
    verbs_by_host: Mapping[HostDag, Collection[Verb]]

    @property
    def verbs(self) -> Collection[Verb]:
        """What he may do in one DAG of the pipeline or another."""
        return {verb for verbs in self.verbs_by_host.values() for verb in verbs}

    def require(self, *verbs: Verb) -> HostDag:
        """Return the first DAG in which he may do all of it; refuse him with 403 without one."""
        for host, has in self.verbs_by_host.items():
            if set(verbs) <= set(has):
                return host
        missing = next((each for each in verbs if each not in self.verbs), None)
        what = "do all of this in one DAG" if missing is None else missing.replace("_", " ")
        told = f"You have no right to {what} here. Nothing was shown or changed."
        raise HTTPException(status.HTTP_403_FORBIDDEN, told)


def find_visitor(user: GetUserDep, pipeline: Pipeline) -> Visitor:
    """Ask Airflow, once for a request. Raises ConfigurationError if a setting names no right."""
    readable = [each for each in find_hosts([pipeline])[pipeline] if _may(user, each, "GET")]
    found = {each: _list_verbs(user, each) for each in readable}
    return Visitor(user, dict(sorted(found.items(), key=lambda item: Verb.OPERATE not in item[1])))


OfVisitor = Annotated[Visitor, Depends(find_visitor)]


def require_reader(visitor: OfVisitor) -> None:
    """Refuse a user who may read no DAG of the pipeline, with 403."""
    visitor.require(Verb.LOOK)


def require_operator(visitor: OfVisitor) -> None:
    """Refuse a user who may trigger no DAG of the pipeline, with 403."""
    visitor.require(Verb.OPERATE)


def _list_verbs(user: Any, host: HostDag) -> Collection[Verb]:
    if not _may(user, host, "POST", DagAccessEntity.RUN):
        return {Verb.LOOK}
    further = {verb: parse_right(conf.get(SECTION, name, fallback=""), name) for verb, name in SETTINGS.items()}
    manager = get_auth_manager()

    def has(right: Right) -> bool:
        match right.resource:
            case Resource.DAG:
                return _may(user, host, right.method)
            case Resource.CONNECTION:
                return manager.is_authorized_connection(method=right.method, user=user)
            case Resource.VIEW:
                return manager.is_authorized_custom_view(method=right.method, resource_name=right.name, user=user)

    return {verb for verb in Verb if (right := further.get(verb)) is None or has(right)}


def _may(user: Any, host: HostDag, method: Method, entity: DagAccessEntity | None = None) -> bool:
    details = DagDetails(id=host.dag_id, team_name=DagModel.get_team_name(host.dag_id))
    return get_auth_manager().is_authorized_dag(method=method, access_entity=entity, details=details, user=user)


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
