"""Where Airflow looks for a connection: prepared for our own programs, and told by the error that found none.

``plain_lookup`` reads what is plain, and Airflow's own code looks up the rest. This module itself reads ids and types
only, for the words of that error.
"""

import json
import os
from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sqlalchemy import URL

PREFIX = "AIRFLOW_CONN_"
_PROCESS = "_AIRFLOW_PROCESS_CONTEXT"
_BARRED = "airflow-db-not-allowed:"
"""How the address of Airflow's database begins in a task, and in every program that a task starts."""
_WAIT_SECONDS = 10


@dataclass(frozen=True, slots=True)
class Search:
    """Where Airflow has looked, in its order, and the types of the connections that it can list there, by id."""

    places: tuple[str, ...]
    known: Mapping[str, str]
    unreadable: str = ""
    """The database that has the connection, encrypted by another key than this process has; else empty."""


def prepare_command(environ: MutableMapping[str, str] = os.environ) -> None:
    """Let Airflow look into its own database too, as in `airflow connections get`. Call it before Airflow is imported.

    A command that a task has started finds what its environment and its secrets backend have: Airflow bars tasks from
    the database.
    """
    prepare_job(environ)
    if not _is_barred(environ):
        environ.setdefault(_PROCESS, "server")
        # Airflow's driver of PostgreSQL would wait for minutes for a server that does not answer.
        environ.setdefault("PGCONNECT_TIMEOUT", str(_WAIT_SECONDS))


def prepare_job(environ: MutableMapping[str, str] = os.environ) -> None:
    """Let a program that a task has started import Airflow, which fails at the address that bars its database."""
    if _is_barred(environ):
        # As Airflow's operator for virtual environments has it: no database is opened.
        environ.setdefault("PYTHON_OPERATORS_VIRTUAL_ENV_MODE", "1")
        environ[_PROCESS] = "client"


def describe_search(connection_id: str) -> Search:
    """Return where a connection was looked for in vain, without secrets."""
    from airflow.sdk.execution_time.supervisor import ensure_secrets_backend_loaded

    places, known, unreadable = list[str](), dict[str, str](), ""
    for backend in ensure_secrets_backend_loaded():
        place, found = name_place(backend_name := type(backend).__name__, connection_id), dict[str, str]()
        match backend_name:
            case "EnvironmentVariablesBackend":
                found = {name: _read_type(text) for name, text in _list_variables()}
            case "ExecutionAPISecretsBackend":
                pass
            case "MetastoreBackend":
                place, found = _read_database()
                unreadable = place if connection_id in found else ""
            case _:
                found = _list_local_file()
        places.append(place)
        known |= found
    return Search(tuple(places), known, unreadable)


def find_place(connection_id: str) -> str:
    """Return in words where Airflow finds a connection: each place is asked once more. Empty if none has it."""
    from airflow.sdk.execution_time.supervisor import ensure_secrets_backend_loaded

    for backend in ensure_secrets_backend_loaded():
        # Airflow goes on to the next one, too, whatever this one raises.
        with suppress(Exception):
            if backend.get_connection(conn_id=connection_id):
                return name_place(type(backend).__name__, connection_id)
    return ""


def name_place(backend: str, connection_id: str) -> str:
    """Return in words where a class of Airflow's looks for a connection."""
    match backend:
        case "EnvironmentVariablesBackend":
            return f"the environment ({PREFIX}{connection_id.upper()})"
        case "ExecutionAPISecretsBackend":
            return "Airflow's API server, which asks its own environment, backend and database"
        case "MetastoreBackend":
            return "Airflow's database"
        case name:
            return f"the secrets backend {name}"


def plain_type(type_: str) -> str:
    """Return a type with underscores: a URI, whose scheme has none, says spark-connect."""
    return type_.replace("-", "_")


def _is_barred(environ: Mapping[str, str]) -> bool:
    return environ.get("AIRFLOW__DATABASE__SQL_ALCHEMY_CONN", "").startswith(_BARRED)


def _read_database() -> tuple[str, dict[str, str]]:
    """Return Airflow's database in words, and the types of its connections by id: none if it cannot be read."""
    from airflow import settings
    from airflow.models.connection import Connection
    from airflow.utils.session import create_session
    from sqlalchemy import select
    from sqlalchemy.exc import SQLAlchemyError

    address = f" ({_address(settings.engine.url)})" if settings.engine else ""
    place = f"Airflow's database{address}"
    try:
        with create_session() as session:
            rows = session.execute(select(Connection.conn_id, Connection.conn_type)).all()
    except SQLAlchemyError as error:
        return f"{place}, which could not be read: {type(error).__name__}", {}
    return place, {name: type_ or "" for name, type_ in rows}


def _address(url: "URL") -> str:
    """Return dialect, host, port and database: a login, and what a query may hold, are left out."""
    host = f"{url.host or ''}{f':{url.port}' if url.port else ''}"
    return f"{url.get_backend_name()}://{host}/{url.database or ''}"


def _list_variables() -> Iterator[tuple[str, str]]:
    """Yield the connections of this process's environment: id and text."""
    for name, text in os.environ.items():
        if name.startswith(PREFIX):
            yield name.removeprefix(PREFIX).lower(), text


def _list_local_file() -> dict[str, str]:
    """Return types by id of Airflow's local file, if that is the backend. Other backends cannot list theirs."""
    from airflow.exceptions import AirflowException
    from airflow.sdk.configuration import conf
    from airflow.secrets.local_filesystem import load_connections_dict

    # A fault of another connection does not concern this error.
    with suppress(AirflowException, OSError, ValueError):
        settings = json.loads(conf.get("secrets", "backend_kwargs", fallback="") or "{}")
        if "connections_file_path" in settings:
            found = load_connections_dict(settings["connections_file_path"])
            return {name: each.conn_type or "" for name, each in found.items()}
    return {}


def _read_type(text: str) -> str:
    """Return the type of a connection that is written as JSON or as a URI, empty if it is neither."""
    with suppress(ValueError):
        return str(json.loads(text).get("conn_type", "")) if text.startswith("{") else text.partition("://")[0]
    return ""
