"""Where the tabs lead that Airflow shows on each DAG and each run: to what stands there, and to batches of pipelines.

The DAG of a file is called as its pipeline or watch. In a person's own DAG several of both may stand, or none.
"""

from airflow.api_fastapi.core_api.security import GetUserDep
from fastapi import HTTPException, Request, status
from fastapi.responses import RedirectResponse, Response

from batchledger.books.overview import find_batch_of_run
from batchledger.config.pipeline_file import PipelineConfig, find_files, is_watch, load_pipeline
from batchledger.database.sessions import keep_connections
from batchledger.interfaces.page.access import Pipeline, list_readable
from batchledger.interfaces.page.airflow_state import HostDag, list_hosted
from batchledger.interfaces.page.ordering import write_query
from batchledger.interfaces.page.rendering import show
from batchledger.looking import ledger_dsn
from batchledger.model.errors import BatchledgerError, UnknownPipelineError

RUNS_OF_DAG = 20


def load(name: str) -> PipelineConfig:
    """Return a pipeline. Other DAGs have these tabs, too, and are none."""
    try:
        return load_pipeline(name)
    except UnknownPipelineError as error:
        raise HTTPException(
            status.HTTP_404_NOT_FOUND,
            f"The DAG {name} is no pipeline: there is no pipeline file of this name, and no pipeline stands in it.",
        ) from error


def lead_from_dag(request: Request, dag_id: str) -> Response | None:
    """Lead from the DAG of a watch to the watch, and from a person's own DAG to what is in it; None for other DAGs."""
    hosted = [dag_id] if is_watch(dag_id) else _list_hosted(dag_id)
    if not hosted:
        return None
    return _lead(request, _name_page(hosted[0]) if len(hosted) == 1 else f"/pipelines{write_query({'dag': dag_id})}")


def show_run(request: Request, dag_id: Pipeline, run_id: str, user: GetUserDep) -> Response:
    """Lead from a run to the batch that it worked on last, or say what is there instead of one batch.

    A run of very many pipelines leads to their list, and the run of a watch to the watch.
    """
    if is_watch(dag_id):
        return _lead(request, _name_page(dag_id))
    names = set(list_readable(user)).intersection(_list_hosted(dag_id))
    if len(names) > RUNS_OF_DAG:
        return _lead(request, f"/pipelines{write_query({'dag': dag_id})}")
    hosts = [HostDag(dag_id, each, is_own=True) for each in sorted(names)]
    if not hosts:
        hosts = [HostDag(dag_id, load(dag_id).name)]
    told, links = list[str](), list[tuple[str, str, bool]]()
    for host in hosts:
        page, has_batches = _name_page(host.pipeline), not is_watch(host.pipeline)
        try:
            batch_id = _find_batch(host, run_id) if has_batches else None
        except BatchledgerError as error:
            if len(hosts) == 1:
                raise
            told.append(f"{host.pipeline}: {error}")
            continue
        if batch_id is None and has_batches:
            told.append(
                f"{host.pipeline}: Run {run_id} has no batch of its own: it has not planned one yet, found nothing to "
                "do, or was refused. Its task “plan” says which in its log."
            )
        else:
            page += "" if batch_id is None else f"/batches/{batch_id}"
            if len(hosts) == 1:
                return _lead(request, page)
        of = "" if batch_id is None else f": batch {batch_id}"
        links.append((f"{request.scope['root_path']}{page}", f"See {host.pipeline}{of}", False))
    text, title = "\n".join(told), f"{dag_id}: batches of run {run_id}"
    return show(request, "message.html.j2", title=title, text=text, kind="wait", links=links, live=True)


def _find_batch(host: HostDag, run_id: str) -> int | None:
    with keep_connections():
        config = load_pipeline(host.pipeline)
        return find_batch_of_run(ledger_dsn(config), config.name, host.name_run(run_id))


def _list_hosted(dag_id: str) -> list[str]:
    """Return the pipelines and watches of a DAG that have a file. A tag may say anything."""
    hosted = list_hosted(dag_id)
    files = {each.stem for each in find_files()} if hosted else ()
    return [each for each in hosted if each in files]


def _name_page(name: str) -> str:
    return f"/{'watches' if is_watch(name) else 'pipelines'}/{name}"


def _lead(request: Request, page: str) -> RedirectResponse:
    return RedirectResponse(f"{request.scope['root_path']}{page}")
