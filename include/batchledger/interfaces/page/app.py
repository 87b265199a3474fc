"""What answers under ``/batchledger``: each address, who may ask, and what an error looks like.

No rules here: those about pipelines are in the core, those about people in ``access``.
"""

from collections.abc import Awaitable, Callable

from airflow.api_fastapi.app import get_auth_manager
from anyio import CapacityLimiter
from fastapi import FastAPI, HTTPException, Request, status
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.exceptions import HTTPException as AnyHTTPError

from batchledger.interfaces.page import acting, dag_views, data_docs, reading, requests, watch_view
from batchledger.interfaces.page.access import AS_TEXT, FROM_OWN_PAGE, TO_ACT, TO_ENTER, TO_READ
from batchledger.interfaces.page.lookout import Lookout
from batchledger.interfaces.page.metrics import show_metrics
from batchledger.interfaces.page.rendering import HEADERS, read_static, show
from batchledger.model.errors import AccessRefusedError, BatchledgerError, ServiceUnavailableError, UnknownBatchError

ORDERS_AT_ONCE = 8
_METHODS = ["GET", "TRACE", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]
_STATIC = {"htmx.min.js": "text/javascript", "page.js": "text/javascript", "style.css": "text/css"}


def build_app() -> FastAPI:
    """Return the application that the plugin mounts under ``/batchledger``."""
    app = FastAPI(
        title="Batchledger",
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        redirect_slashes=False,
        dependencies=[TO_ENTER, AS_TEXT],
    )
    app.state.lookout = Lookout()
    app.state.orders = CapacityLimiter(ORDERS_AT_ONCE)
    app.middleware("http")(_guard)
    app.exception_handler(BatchledgerError)(_show_error)
    app.exception_handler(AnyHTTPError)(_show_refusal)
    app.exception_handler(RequestValidationError)(_show_misunderstanding)
    of_pipeline = [TO_READ]
    app.get("/")(_lead_in)
    app.get("/static/{name}")(_send_static)
    app.get("/metrics")(show_metrics)
    app.get("/pipelines")(reading.show_pipelines)
    app.get("/watches/{dag_id}", dependencies=of_pipeline)(watch_view.show_watch)
    app.get("/pipelines/{dag_id}", dependencies=of_pipeline)(reading.show_pipeline)
    app.get("/pipelines/{dag_id}/partitions/{topic}/{partition}", dependencies=of_pipeline)(reading.show_partition)
    app.get("/pipelines/{dag_id}/batches/{batch_id}", dependencies=of_pipeline)(reading.show_batch)
    app.get("/pipelines/{dag_id}/schema", dependencies=of_pipeline)(reading.show_schema)
    app.get("/pipelines/{dag_id}/runs/{run_id:path}", dependencies=of_pipeline)(dag_views.show_run)
    app.get("/pipelines/{dag_id}/decisions", dependencies=of_pipeline)(acting.show_decisions)
    app.get("/pipelines/{dag_id}/progress/{run_id:path}", dependencies=of_pipeline)(acting.follow_run)
    to_act = [TO_ACT, FROM_OWN_PAGE]
    app.post("/pipelines/{dag_id}/decisions/{kind}/preview", dependencies=to_act)(acting.preview)
    app.post("/pipelines/{dag_id}/decisions/{kind}", dependencies=to_act)(acting.carry_out)
    app.post("/pipelines/{dag_id}/dry-runs/{run_id:path}", dependencies=to_act)(acting.follow_dry_run)
    app.post("/pipelines/{dag_id}/requests/{request_id}", dependencies=to_act)(requests.end)
    data_docs.add_routes(app)
    # Last, so that also what does not exist, and what is asked for in a wrong way, needs a login first.
    app.api_route("/{anything:path}", methods=_METHODS)(_find_nothing)
    return app


def _lead_in(request: Request) -> RedirectResponse:
    return RedirectResponse(f"{request.scope['root_path']}/pipelines")


def _send_static(name: str) -> Response:
    """Send a file that the pages need; only those that are named here are there."""
    if name not in _STATIC:
        raise HTTPException(status.HTTP_404_NOT_FOUND, "there is no such file")
    # Pages name each with a digest of what it holds, so a newer one has another address.
    return Response(read_static(name), media_type=_STATIC[name], headers={"Cache-Control": "private, max-age=604800"})


def _find_nothing() -> None:
    raise HTTPException(status.HTTP_404_NOT_FOUND, "there is no such page")


async def _guard(request: Request, call_next: Callable[[Request], Awaitable[Response]]) -> Response:
    """Forbid to every answer what no page here needs."""
    answer = await call_next(request)
    for name, value in HEADERS.items():
        answer.headers.setdefault(name, value)
    return answer


def _show_error(request: Request, error: Exception) -> HTMLResponse:
    """Show what an error of the family says, which is made to be read by people, and nothing else of it."""
    if isinstance(error, AccessRefusedError):
        code, title = status.HTTP_503_SERVICE_UNAVAILABLE, "Something does not let Batchledger in"
    elif isinstance(error, ServiceUnavailableError):
        code, title = status.HTTP_503_SERVICE_UNAVAILABLE, "Something does not answer"
    elif isinstance(error, UnknownBatchError):
        code, title = status.HTTP_404_NOT_FOUND, "There is no such batch"
    else:
        code, title = status.HTTP_409_CONFLICT, "This could not be shown"
    link = (f"{request.scope['root_path']}/pipelines", "All pipelines", False)
    return show(request, "message.html.j2", code, title=title, text=str(error), kind="bad", links=[link], live=True)


def _show_misunderstanding(request: Request, error: RequestValidationError) -> Response:
    """Say which part of an address is not what it should be."""
    wrong = "\n".join(f"{each['loc'][-1]}: {each['msg']}" for each in error.errors())
    return _show_refusal(request, HTTPException(status.HTTP_422_UNPROCESSABLE_CONTENT, wrong))


def _show_refusal(request: Request, error: AnyHTTPError) -> Response:
    """Show people a page, and programs JSON; who is not logged in is led to the login."""
    if "text/html" not in request.headers.get("accept", ""):
        return JSONResponse({"detail": error.detail}, error.status_code, headers=error.headers)
    links = []
    title = {401: "Please log in", 403: "You may not see this", 404: "There is no such page"}.get(
        error.status_code, "This was refused"
    )
    if error.status_code == status.HTTP_401_UNAUTHORIZED:
        # Without a host: a client may name any.
        here = request.url.path + (f"?{request.url.query}" if request.url.query else "")
        links = [(get_auth_manager().get_url_login(next_url=here), "Log in to Airflow", True)]
    return show(
        request,
        "message.html.j2",
        error.status_code,
        title=title,
        text=str(error.detail),
        # Every DAG has our tabs, also one that is no pipeline.
        kind="wait" if error.status_code == status.HTTP_404_NOT_FOUND else "bad",
        links=links,
        live=False,
    )
