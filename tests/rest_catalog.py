"""A catalog that speaks Iceberg's REST protocol over HTTP, on 127.0.0.1: PyIceberg's own in a file of SQLite behind it.

It does as much as PyIceberg's client asks of it: the configuration, tokens, namespaces, tables, and commits that it
takes or refuses as a whole. Told to, it fails as servers and what stands before them do.
"""

import json
import ssl
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from socket import create_server
from types import SimpleNamespace
from typing import Any, cast

import uvicorn
from pyiceberg.catalog.rest import CreateTableRequest, TableResponse
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import (
    CommitFailedException,
    NamespaceAlreadyExistsError,
    NamespaceNotEmptyError,
    NoSuchNamespaceError,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.table import CommitTableRequest, Table
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.typedef import IcebergBaseModel
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from batchledger.sinks.iceberg.catalog import LakeCatalog
from tests.support import wait_until

HOST = "127.0.0.1"
PREFIX = "shop"
LOGIN, PASSWORD = "batchledger", "s3cret-password"
NAMESPACES, TABLE = f"/v1/{PREFIX}/namespaces", "/{namespace}/tables/{table}"
_CODES = {
    CommitFailedException: 409,
    NamespaceAlreadyExistsError: 409,
    NamespaceNotEmptyError: 409,
    TableAlreadyExistsError: 409,
    NoSuchNamespaceError: 404,
    NoSuchTableError: 404,
}


class Fault(Enum):
    """What becomes of a commit: whether it is made, and how it is answered."""

    REFUSED_UNAVAILABLE = (False, 503)
    LOST_ERROR = (True, 500)
    LOST_GATEWAY = (True, 502)
    LOST_TIMEOUT = (True, 504)
    LOST_CONNECTION = (True, "the connection is cut")
    LOST_SILENCE = (True, "nobody answers")
    MADE_TWICE = (True, 409)
    """As a gateway answers that has sent the commit again after it lost the reply itself."""

    @property
    def is_made(self) -> bool:
        return bool(self.value[0])


@dataclass
class RestServer:
    """A server that runs. ``faults`` meet the next commits, in order; every table has ``table_config``.

    ``before_commit`` is called when a commit has arrived and before it is made; ``refused`` are the requests that
    were answered by a conflict. A server that ``is_away`` does not load tables. What it fails with and should
    not is ``broken``.
    """

    port: int
    catalog: SqlCatalog
    token: str = "t0ken-of-the-server"  # noqa: S105
    faults: list[Fault | None] = field(default_factory=list)
    table_config: dict[str, str] = field(default_factory=dict)
    before_commit: Callable[[], None] | None = None
    refused: list[str] = field(default_factory=list)
    broken: list[Exception] = field(default_factory=list)
    is_away: bool = False
    scheme: str = "http"
    goes_on: threading.Event = field(default_factory=threading.Event)

    @property
    def url(self) -> str:
        return f"{self.scheme}://{HOST}:{self.port}"

    def connect(self, **changes: str) -> LakeCatalog:
        """A catalog of a client's own."""
        properties = {"type": "rest", "uri": self.url, "warehouse": "shop", "credential": f"{LOGIN}:{PASSWORD}"}
        # Without it PyIceberg finds the same, and warns each time.
        tokens = {"oauth2-server-uri": f"{self.url}/v1/oauth/tokens"}
        return LakeCatalog("lake", {**properties, **tokens, **changes})

    def count_refused(self, namespace: str) -> int:
        """How many commits to tables of a namespace have met another one."""
        return sum(each.startswith(f"{NAMESPACES}/{namespace}/tables/") for each in self.refused)

    @property
    def app(self) -> Starlette:
        """What it answers."""
        # Starlette takes HEAD where it takes GET, and gives no body.
        routes = [
            Route("/v1/config", self._open(self._tell_config), methods=["GET"]),
            Route("/v1/oauth/tokens", self._lend_token, methods=["POST"]),
            Route(NAMESPACES, self._open(self._create_namespace), methods=["POST"]),
            Route(f"{NAMESPACES}/{{namespace}}", self._open(self._load_namespace), methods=["GET"]),
            Route(f"{NAMESPACES}/{{namespace}}", self._open(self._drop_namespace), methods=["DELETE"]),
            Route(f"{NAMESPACES}/{{namespace}}/tables", self._open(self._list_tables), methods=["GET"]),
            Route(f"{NAMESPACES}/{{namespace}}/tables", self._open(self._create_table), methods=["POST"]),
            Route(f"{NAMESPACES}{TABLE}", self._open(self._load_table), methods=["GET"]),
            Route(f"{NAMESPACES}{TABLE}", self._open(self._commit), methods=["POST"]),
            Route(f"{NAMESPACES}{TABLE}", self._open(self._drop_table), methods=["DELETE"]),
            Route(f"/v1/{PREFIX}/tables/rename", self._open(self._rename_table), methods=["POST"]),
        ]
        return Starlette(routes=routes)

    def _open(self, answer: Callable[[Request, bytes], Any]) -> Callable[[Request], Awaitable[Response]]:
        """Answer clients with the token, in a thread; errors become the protocol's."""

        async def handle(request: Request) -> Response:
            response = await respond(request)
            if response.status_code == 409:
                self.refused.append(request.url.path)
            return response

        async def respond(request: Request) -> Response:
            if self.is_away and request.method == "GET":
                return _refuse(503, "ServiceUnavailable", "come back later")
            if request.headers.get("Authorization") != f"Bearer {self.token}":
                return _refuse(401, "NotAuthorizedException", "who are you?")
            body = await request.body()
            try:
                answered = await run_in_threadpool(answer, request, body)
            except tuple(_CODES) as error:
                return _refuse(_CODES[type(error)], type(error).__name__, str(error))
            except Exception as error:
                self.broken.append(error)
                raise
            match answered:
                case Response():
                    return answered
                case IcebergBaseModel():
                    return Response(answered.model_dump_json(), media_type="application/json")
            return Response(status_code=204) if answered is None else JSONResponse(answered)

        return handle

    async def _lend_token(self, request: Request) -> Response:
        form = dict(each.split("=") for each in (await request.body()).decode().split("&"))
        if (form["client_id"], form["client_secret"]) != (LOGIN, PASSWORD):
            return JSONResponse({"error": "invalid_client", "error_description": "no such client"}, 401)
        return JSONResponse({"access_token": self.token, "token_type": "bearer"})

    def _tell_config(self, request: Request, body: bytes) -> Any:
        names = ["namespaces", "namespaces/{namespace}", "namespaces/{namespace}/tables", "tables/rename"]
        paths = [f"/v1/{{prefix}}/{each}" for each in (*names, "namespaces/{namespace}/tables/{table}")]
        endpoints = [f"{method} {path}" for path in paths for method in ("GET", "HEAD", "POST", "DELETE")]
        return {"defaults": {}, "overrides": {"prefix": PREFIX}, "endpoints": endpoints}

    def _create_namespace(self, request: Request, body: bytes) -> Any:
        namespace = _read(body)["namespace"]
        self.catalog.create_namespace(tuple(namespace))
        return {"namespace": namespace, "properties": {}}

    def _load_namespace(self, request: Request, body: bytes) -> Any:
        namespace = _namespace_of(request)
        return {"namespace": namespace, "properties": self.catalog.load_namespace_properties(namespace)}

    def _drop_namespace(self, request: Request, body: bytes) -> None:
        self.catalog.drop_namespace(_namespace_of(request))

    def _list_tables(self, request: Request, body: bytes) -> Any:
        found = self.catalog.list_tables(_namespace_of(request))
        return {"identifiers": [{"namespace": each[:-1], "name": each[-1]} for each in found]}

    def _create_table(self, request: Request, body: bytes) -> Any:
        # PyIceberg sends no location that is empty, and does not read a request without one.
        wanted = CreateTableRequest.model_validate({"location": None, **_read(body)})
        identifier = (*_namespace_of(request), wanted.name)
        if self.catalog.table_exists(identifier):
            raise TableAlreadyExistsError(f"table {'.'.join(identifier)} exists")
        create = self.catalog._create_staged_table if wanted.stage_create else self.catalog.create_table
        made = create(
            identifier,
            wanted.table_schema,
            wanted.location,
            wanted.partition_spec or UNPARTITIONED_PARTITION_SPEC,
            wanted.write_order or UNSORTED_SORT_ORDER,
            wanted.properties,
        )
        return self._describe(made, None if wanted.stage_create else made.metadata_location)

    def _load_table(self, request: Request, body: bytes) -> Any:
        table = self.catalog.load_table(_table_of(request))
        return self._describe(table, table.metadata_location)

    def _describe(self, table: Table, place: str | None) -> TableResponse:
        return TableResponse.model_validate(
            {"metadata-location": place, "metadata": table.metadata, "config": self.table_config}
        )

    def _commit(self, request: Request, body: bytes) -> Any:
        wanted = CommitTableRequest.model_validate_json(body)
        identifier = _table_of(request)
        if self.before_commit is not None:
            self.before_commit()
        fault = self.faults.pop(0) if self.faults else None
        done = None
        if fault is None or fault.is_made:
            table = cast("Table", SimpleNamespace(name=lambda: identifier))
            try:
                done = self.catalog.commit_table(table, wanted.requirements, wanted.updates)
            except ValueError as error:
                if "sequence number" not in str(error):
                    raise
                # As Iceberg's own server answers: the sender looks again.
                raise CommitFailedException(str(error)) from error
        match fault:
            case None:
                return done
            case Fault.LOST_CONNECTION:
                return CutResponse()
            case Fault.LOST_SILENCE:
                self.goes_on.wait()
                return CutResponse()
            case Fault.MADE_TWICE:
                # It is what the catalog itself says to the same commit.
                self.catalog.commit_table(table, wanted.requirements, wanted.updates)
        return _refuse(fault.value[1], "Fault", fault.name)

    def _drop_table(self, request: Request, body: bytes) -> None:
        self.catalog.drop_table(_table_of(request))

    def _rename_table(self, request: Request, body: bytes) -> None:
        wanted = _read(body)
        source, destination = ((*wanted[each]["namespace"], wanted[each]["name"]) for each in ("source", "destination"))
        self.catalog.rename_table(source, destination)


class CutResponse(Response):
    """An answer that ends before it is whole: the server closes the connection."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"1000")]})


@contextmanager
def serve_rest_catalog(
    folder: Path, certificate: tuple[Path, Path] | None = None, authority_of_clients: Path | None = None
) -> Iterator[RestServer]:
    """Serve a catalog, whose tables lie in the folder, until the test leaves; with TLS by a certificate and its key.

    Clients need a certificate if an authority is given.
    """
    properties = {"uri": f"sqlite:///{folder / 'catalog.db'}", "warehouse": folder.as_uri()}
    with closing(create_server((HOST, 0))) as listener, closing(SqlCatalog("server", **properties)) as catalog:
        served = RestServer(listener.getsockname()[1], catalog, scheme="https" if certificate else "http")
        tls: dict[str, Any] = dict(zip(("ssl_certfile", "ssl_keyfile"), certificate or (), strict=False))
        if authority_of_clients is not None:
            tls |= {"ssl_ca_certs": str(authority_of_clients), "ssl_cert_reqs": ssl.CERT_REQUIRED}
        server = uvicorn.Server(uvicorn.Config(served.app, log_config=None, access_log=False, ws="none", **tls))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        try:
            wait_until(lambda: server.started)
            yield served
        finally:
            served.goes_on.set()
            server.should_exit = True
            thread.join(30)
        for error in served.broken:
            raise error


def _refuse(code: int, type_: str, message: str) -> Response:
    return JSONResponse({"error": {"message": message, "type": type_, "code": code}}, code)


def _read(body: bytes) -> Any:
    return json.loads(body)


def _namespace_of(request: Request) -> tuple[str, ...]:
    return tuple(request.path_params["namespace"].split("\x1f"))


def _table_of(request: Request) -> tuple[str, ...]:
    return (*_namespace_of(request), request.path_params["table"])
