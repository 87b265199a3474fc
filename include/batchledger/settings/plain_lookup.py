"""Reads a connection without Airflow, whose import takes seconds, where the result is the same as Airflow's.

That is a connection in the environment, or in the JSON file of Airflow's local secrets backend. Airflow itself is asked
for everything else: another secrets backend, settings from elsewhere, its own database, an entry that it might refuse.
"""

import configparser
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from batchledger.settings.lookup import PREFIX, name_place

_LOCAL_FILE = "airflow.secrets.local_filesystem.LocalFilesystemBackend"
_SETTINGS_ELSEWHERE = ("AIRFLOW__SECRETS__", "AIRFLOW__WORKERS__SECRETS_BACKEND")
_HARMLESS = frozenset({"backend", "backend_kwargs", "use_cache", "cache_ttl_seconds"})
_FIELDS = frozenset({"conn_type", "description", "host", "login", "password", "schema", "port", "extra"})
_TEAM = "___"


def find_plainly(connection_id: str, environ: Mapping[str, str] = os.environ) -> dict[str, Any] | None:
    """Return the fields of a connection in Airflow's names, with ``extra`` as an object; None: ask Airflow.

    ``place`` says in words where it is. Airflow's order: the secrets backend comes first, then the environment. A
    process that has imported Airflow asks it: this costs nothing there, and Airflow masks the secrets of a task in its
    log.
    """
    if "airflow.sdk" in sys.modules or _TEAM in connection_id:
        return None
    try:
        backend = _read_backend(environ)
        if connection_id in backend:
            return {**backend[connection_id], "place": name_place(_LOCAL_FILE.rpartition(".")[2], connection_id)}
        found = _read_text(environ.get(f"{PREFIX}{connection_id.upper()}", "").strip())
        return found and {**found, "place": name_place("EnvironmentVariablesBackend", connection_id)}
    except (configparser.Error, OSError, ValueError, TypeError, AttributeError, RecursionError):
        # Whatever the settings hold: Airflow refuses it in words of its own, and may go on from it.
        return None


def _read_backend(environ: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """Return what the secrets backend has, if there is none or a local file of JSON. Raises ValueError for others."""
    if any(name.startswith(_SETTINGS_ELSEWHERE) for name in environ):
        raise ValueError("settings of secrets in the environment")
    settings = configparser.ConfigParser()
    settings.read(_find_settings(environ))
    workers = settings["workers"] if settings.has_section("workers") else {}
    secrets = dict(settings["secrets"]) if settings.has_section("secrets") else {}
    if any(name.startswith("secrets_backend") and value for name, value in workers.items()):
        raise ValueError("workers have a backend of their own")
    if {name for name, value in secrets.items() if value} - _HARMLESS:
        raise ValueError("settings from elsewhere")
    if not secrets.get("backend"):
        return {}
    if secrets["backend"] != _LOCAL_FILE:
        raise ValueError("another backend")
    given = json.loads(secrets.get("backend_kwargs", ""))
    if given.keys() != {"connections_file_path"} or "$" in secrets["backend_kwargs"]:
        raise ValueError("not a file of connections alone")
    return _read_file(Path(given["connections_file_path"]))


def _find_settings(environ: Mapping[str, str]) -> str:
    """Return where Airflow's settings are. Raises ValueError for an address that Airflow would go on expanding."""
    home = environ.get("AIRFLOW_HOME", "~/airflow")
    path = Path(environ.get("AIRFLOW_CONFIG", f"{home}/airflow.cfg")).expanduser()
    if "$" in str(path):
        raise ValueError("a variable in a path")
    return str(path)


def _read_file(path: Path) -> dict[str, dict[str, Any]]:
    """Return all connections of the file. One that Airflow might refuse makes it refuse all: raises ValueError."""
    if path.suffix != ".json":
        raise ValueError("not a file of JSON")
    found = dict(json.loads(path.read_text()))
    for each in found.values():
        extra = each.get("extra") or {} if isinstance(each, dict) else None
        if not (isinstance(extra, dict) and each.get("conn_type") and each.keys() <= _FIELDS):
            raise ValueError("a connection in another form")
        if each.get("password", "x") == "" or not isinstance(each.get("port"), int | None):
            raise ValueError("a value that Airflow changes")
    return {name: {**each, "extra": each.get("extra") or {}} for name, each in found.items()}


def _read_text(text: str) -> dict[str, Any] | None:
    """Return the connection that a variable holds as JSON or as a URI; None if it is empty. Raises ValueError."""
    if not text:
        return None
    fields = json.loads(text) if text.startswith("{") else _read_uri(text)
    type_, port, extra = fields.get("conn_type") or "", fields.get("port") or None, fields.get("extra") or "{}"
    if fields.keys() - _FIELDS or not isinstance(type_, str) or not isinstance(port, str | int | None):
        raise ValueError("a field or a value that Airflow does not take")
    return {
        **fields,
        "conn_type": "postgres" if type_ == "postgresql" else type_.replace("-", "_"),
        "port": None if port is None else int(port),
        "extra": json.loads(extra if isinstance(extra, str) else json.dumps(extra)),
    }


def _read_uri(uri: str) -> dict[str, Any]:
    """Return the fields of a URI as Airflow 3.3 does. Its host may have a protocol of its own. Raises ValueError."""
    type_ = urlsplit(uri).scheme
    protocols = uri.count("://")
    rest = uri.replace(f"{type_}://", "" if protocols == 2 else "//")
    if protocols > 2 or (protocols == 2 and {"@", ":"} & {*rest.partition("://")[0]}):
        raise ValueError("not a URI of a connection")
    parts = urlsplit(rest)
    host = _read_host(parts)
    query = dict(parse_qsl(parts.query, keep_blank_values=True))
    return {
        "conn_type": type_,
        "host": f"{parts.scheme}://{host}" if protocols == 2 and parts.scheme and host else host,
        "schema": unquote(parts.path[1:]),
        "login": parts.username and unquote(parts.username),
        "password": parts.password and unquote(parts.password),
        "port": parts.port,
        "extra": query.get("__extra__", json.dumps(query)),
    }


def _read_host(parts: SplitResult) -> str:
    """Return the host. A path in it, such as a socket's, keeps its case, unlike a name."""
    host = unquote(parts.hostname or "")
    return unquote(parts.netloc.rpartition("@")[2].partition(":")[0]) if "/" in host else host
