"""Folders, ports and secrets of the local services. Nothing here starts anything.

Everything of a stack lies in its local folder (``.local``). Other users can read none of it but PostgreSQL's programs.
Downloads lie in a cache that several stacks may share.
"""

import base64
import contextlib
import dataclasses
import fcntl
import json
import os
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from batchledger import DISTRIBUTION
from batchledger.config.places import (
    default_cache_folder,
    default_local_folder,
    default_pipelines_folder,
    find_checkout,
    make_private_folder,
)
from batchledger.local.stack.defaults import PORT_BY_SERVICE
from batchledger.model.errors import SetupError

SETTINGS_FILE = "stack.json"
_LARGEST_PORT = 65535


@dataclass(frozen=True)
class Home:
    """The folders of one stack. ``root`` holds ``dags/`` and ``plugins/``, ``local`` what the services write."""

    root: Path
    local: Path
    cache: Path
    pipelines: Path

    @classmethod
    def of_project(cls, environ: Mapping[str, str] = os.environ) -> Self:
        """The checkout, or what an installed package has instead; see ``config/places.py``.

        ``BATCHLEDGER_LOCAL``, ``BATCHLEDGER_CACHE`` and ``BATCHLEDGER_PIPELINES`` move folders.
        """
        local = local_folder(environ)
        default = read_settings(local).get("pipelines", default_pipelines_folder())
        return cls(
            root=find_checkout() or local / "airflow",
            local=local,
            cache=Path(environ.get("BATCHLEDGER_CACHE", default_cache_folder(environ))).resolve(),
            pipelines=Path(environ.get("BATCHLEDGER_PIPELINES", default)).resolve(),
        )

    @property
    def settings_file(self) -> Path:
        """The ports and the pipeline folder of the running stack; ``down`` removes it."""
        return self.local / SETTINGS_FILE

    @property
    def connections_file(self) -> Path:
        """Airflow's connections, in the form that its local secrets backend reads."""
        return self.local / "connections.json"

    @property
    def lake(self) -> Path:
        """Where the files of Iceberg tables lie."""
        return self.local / "lake"

    @property
    def docs(self) -> Path:
        """Where the pages of Data Docs lie."""
        return self.local / "docs"

    @property
    def more_dags(self) -> Path:
        """DAGs that Airflow reads beside those in ``root``: the demo's, and yours to try."""
        return self.local / "dags"

    @property
    def database_password_file(self) -> Path:
        """In the format of libpq, for every role but the superuser: their DSNs name it."""
        return self.local / "pgpass"

    @property
    def kafka_login_file(self) -> Path:
        """In the format of clients in Java: Kafka's own tools take it as ``--command-config``."""
        return self.local / "kafka.properties"

    @property
    def airflow_password_file(self) -> Path:
        """The passwords of Airflow's users, as JSON by user."""
        return self.local / "airflow" / "passwords.json"

    def log_file(self, service: str) -> Path:
        """Everything that a service has said since its latest start."""
        return self.local / "log" / f"{service}.log"


def local_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """The folder in which the local services write; it need not exist."""
    return Path(environ.get("BATCHLEDGER_LOCAL", default_local_folder())).resolve()


@dataclass(frozen=True)
class Ports:
    """The ports on 127.0.0.1, one for each listening service."""

    kafka: int
    kafka_controller: int
    postgres: int
    spark: int
    airflow: int
    registry: int

    @classmethod
    def choose(cls, home: Home, environ: Mapping[str, str] = os.environ) -> Self:
        """Take ``BATCHLEDGER_<SERVICE>_PORT``, else the ports of the running stack, else the defaults."""
        known = PORT_BY_SERVICE | read_settings(home.local).get("ports", {})
        return cls(**{one.name: _read_port(environ, one.name, known[one.name]) for one in dataclasses.fields(cls)})


def port_variable(service: str) -> str:
    """The environment variable that changes the port: ``BATCHLEDGER_KAFKA_PORT`` for ``kafka``."""
    return f"BATCHLEDGER_{service.upper()}_PORT"


def _read_port(environ: Mapping[str, str], service: str, otherwise: int) -> int:
    text = environ.get(port_variable(service), str(otherwise))
    if not (text.isascii() and text.isdigit() and 0 < int(text) <= _LARGEST_PORT):
        raise SetupError(
            f"{port_variable(service)} must be a port number from 1 to {_LARGEST_PORT}, found {text!r}.",
            advice=f"Unset it, or set another one: export {port_variable(service)}={PORT_BY_SERVICE[service]}",
        )
    return int(text)


@dataclass(frozen=True)
class Credentials:
    """The secrets of one stack, each generated once. They never reach argv, and no ``repr``."""

    database_password: str = field(default_factory=secrets.token_urlsafe, repr=False)
    ledger_password: str = field(default_factory=secrets.token_urlsafe, repr=False)
    airflow_database_password: str = field(default_factory=secrets.token_urlsafe, repr=False)
    database_superuser_password: str = field(default_factory=secrets.token_urlsafe, repr=False)
    kafka_password: str = field(default_factory=secrets.token_urlsafe, repr=False)
    spark_token: str = field(default_factory=secrets.token_urlsafe, repr=False)
    key_secret: str = field(default_factory=secrets.token_urlsafe, repr=False)
    airflow_password: str = field(default_factory=lambda: secrets.token_urlsafe(12), repr=False)
    airflow_reviewer_password: str = field(default_factory=lambda: secrets.token_urlsafe(12), repr=False)
    airflow_viewer_password: str = field(default_factory=lambda: secrets.token_urlsafe(12), repr=False)
    airflow_secret_key: str = field(default_factory=secrets.token_urlsafe, repr=False)
    airflow_jwt_secret: str = field(default_factory=lambda: secrets.token_urlsafe(64), repr=False)
    airflow_fernet_key: str = field(
        default_factory=lambda: base64.urlsafe_b64encode(secrets.token_bytes(32)).decode(), repr=False
    )

    @classmethod
    def of(cls, home: Home) -> Self:
        """Return the secrets of the stack, from a file that only the owner can read.

        A call generates what the file lacks, and stores it: everything at first, later a secret that is new in this
        version. Processes that call this at once take turns, so all of them get the same secrets.
        """
        file = home.local / "credentials.json"
        make_private_folder(home.local)
        with locked(home.local / "credentials.lock"):
            known = json.loads(file.read_text()) if file.exists() else {}
            credentials = cls(**known)
            if dataclasses.asdict(credentials) != known:
                write_private(file, json.dumps(dataclasses.asdict(credentials)))
        return credentials


def settings(home: Home, ports: Ports) -> dict[str, Any]:
    """What ``up`` stores for ``status``, ``down`` and the command line, until ``down`` removes it."""
    from importlib import metadata

    version = metadata.version(DISTRIBUTION)
    return {"version": version, "ports": dataclasses.asdict(ports), "pipelines": str(home.pipelines)}


def read_settings(local: Path) -> dict[str, Any]:
    """The settings of the running stack; empty if there is none."""
    try:
        return dict(json.loads((local / SETTINGS_FILE).read_text()))
    except FileNotFoundError:
        return {}


def private_folder(folder: Path) -> Path:
    """Return the folder, which is made if it is missing, and closed to other users if it was open."""
    make_private_folder(folder)
    folder.chmod(0o700)
    return folder


@contextlib.contextmanager
def locked(file: Path) -> Iterator[None]:
    """Hold the lock of a file for the block. A lock ends with the process that holds it, however that ends."""
    with open(os.open(file, os.O_WRONLY | os.O_CREAT, 0o600), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def write_private(file: Path, text: str) -> None:
    """Replace the file in one step; at every moment only its owner can read it."""
    make_private_folder(file.parent)
    draft = file.with_name(f".{file.name}.{os.getpid()}")
    draft.unlink(missing_ok=True)
    with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as stream:
        stream.write(text)
    draft.replace(file)
