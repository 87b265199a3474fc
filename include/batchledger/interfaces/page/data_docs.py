"""Data Docs behind Airflow's login: reads files of the docs folder, and nothing else.

Who may see the DAG of a pipeline may see its pages, and its line on the page over all pipelines. The names in a URL are
matched whole before a path is made of them, so none leads out of the folder. Addresses begin where Airflow does, which
may be behind a proxy's prefix.
"""

from pathlib import Path
from urllib.parse import quote

from airflow.api_fastapi.core_api.security import GetUserDep
from fastapi import FastAPI, HTTPException, Request, status
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from batchledger.interfaces.data_docs.folder import POLICY, DocsFolder
from batchledger.interfaces.data_docs.index import write_index
from batchledger.interfaces.page.access import TO_READ, Pipeline, list_readable

# These pages have their own styles in them; the other headers are the same for every answer here.
_HEADERS = {"Content-Security-Policy": f"{POLICY}; frame-ancestors 'self'"}


def add_routes(app: FastAPI) -> None:
    """Add the pages to the application, below ``/docs``."""
    of_pipeline = [TO_READ]
    app.get("/docs")(_redirect_to_index)
    app.get("/docs/")(_redirect_to_index)
    app.get("/docs/index.html")(_show_index)
    app.get("/docs/{dag_id}", dependencies=of_pipeline)(_redirect_to_history)
    app.get("/docs/{dag_id}/", dependencies=of_pipeline)(_redirect_to_history)
    app.get("/docs/{dag_id}/runs/{run_id:path}", dependencies=of_pipeline)(_redirect_to_batch)
    app.get("/docs/{dag_id}/{page}", dependencies=of_pipeline)(_show_page)


def _redirect_to_index(request: Request) -> RedirectResponse:
    return _lead(request, "index.html")


def _show_index(user: GetUserDep) -> HTMLResponse:
    """Show the pipelines that the user may see; the file in the folder tells of all."""
    readable = list_readable(user)
    summaries = DocsFolder.of_environment().list_summaries()
    return HTMLResponse(write_index([each for each in summaries if each["pipeline"] in readable]), headers=_HEADERS)


def _redirect_to_history(request: Request, pipeline: Pipeline) -> RedirectResponse:
    _find(pipeline, "index")
    return _lead(request, f"{pipeline}/index.html")


def _redirect_to_batch(request: Request, pipeline: Pipeline, run_id: str) -> RedirectResponse:
    """Lead from a run to the batch that it worked on last."""
    _find(pipeline, "index")
    summary = DocsFolder.of_environment().read_summary(pipeline) or {}
    batch_id = summary.get("batch_by_run", {}).get(run_id)
    if batch_id is None:
        return _lead_to_ledger(request, f"{pipeline}/runs/{quote(run_id, safe='')}")
    return _lead(request, f"{pipeline}/{int(batch_id)}.html")


def _show_page(request: Request, pipeline: Pipeline, page: str) -> Response:
    """Show a page. If the one of a batch was not written, lead to what the ledger has: an alert is no dead end."""
    file, batch_id = _find(pipeline, page), page.removesuffix(".html")
    if batch_id.isdecimal() and not file.is_file():
        return _lead_to_ledger(request, f"{pipeline}/batches/{int(batch_id)}")
    return _send(file, f"batchledger docs {pipeline}")


def _lead(request: Request, page: str) -> RedirectResponse:
    """Lead to a page, below what the request's address has before the pages' own."""
    return RedirectResponse(f"{request.scope['root_path']}/docs/{page}")


def _lead_to_ledger(request: Request, page: str) -> RedirectResponse:
    """Lead to the page of a batch that is made from the ledger when it is asked for."""
    return RedirectResponse(f"{request.scope['root_path']}/pipelines/{page}")


def _find(pipeline: str, page: str) -> Path:
    file = DocsFolder.of_environment().find_page(pipeline, page)
    if file is None:
        raise HTTPException(status.HTTP_404_NOT_FOUND, "there is no such page")
    return file


def _send(file: Path, command: str) -> HTMLResponse:
    try:
        return HTMLResponse(file.read_text(encoding="utf-8"), headers=_HEADERS)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise _missing(command) from error


def _missing(command: str) -> HTTPException:
    return HTTPException(
        status.HTTP_404_NOT_FOUND,
        "There is no such page of Data Docs.\n"
        "It was not written yet, or its batch is older than the batches that are kept.\n"
        f"The DAG batchledger-data-docs writes pages after each run. Or write them now: {command}",
    )
