"""The schema registry: Apicurio's, which speaks Confluent's protocol too. It starts only when asked for.

Its schemas lie in a database of H2 in one file under ``.local/registry``. Each change is written to the file before
the registry answers, so schemas and their ids survive a kill. It asks for no login, and only this machine reaches it.
"""

import shutil
import tarfile
import tempfile
from pathlib import Path

from batchledger.local.stack.defaults import REGISTRY_VERSION
from batchledger.local.stack.home import Home, Ports, private_folder, write_private
from batchledger.local.stack.jars import fetch_jars
from batchledger.local.stack.machine import HOST, find_java
from batchledger.local.stack.processes import Launch
from batchledger.local.stack.service import Service, base_environment

_RUNNER = f"apicurio-registry-app-{REGISTRY_VERSION}-runner.jar"
_OPTIONS = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData")


def registry_service(home: Home, ports: Ports) -> Service:
    """The registry; it is healthy when it says that it is ready, its database included."""
    return Service(
        name="registry",
        ports=("registry",),
        prepare=lambda: _prepare(home, ports),
        is_healthy=lambda _: _answers(ports),
        silence_seconds=90,
    )


def registry_url(ports: Ports) -> str:
    """Where clients of Confluent's protocol ask."""
    return f"http://{HOST}:{ports.registry}/apis/ccompat/v7"


def registry_properties(home: Home, ports: Ports) -> str:
    """The configuration: one file as the database, few connections to it, reachable from here only."""
    database = home.local / "registry" / "data" / "registry"
    settings = {
        "quarkus.http.host": HOST,
        "quarkus.http.port": ports.registry,
        "quarkus.http.access-log.enabled": "false",
        "quarkus.banner.enabled": "false",
        "apicurio.storage.kind": "sql",
        "apicurio.storage.sql.kind": "h2",
        # By default H2 writes what is committed up to half a second later.
        "apicurio.datasource.url": f"jdbc:h2:file:{database};WRITE_DELAY=0",
        "apicurio.datasource.jdbc.initial-size": 1,
        "apicurio.datasource.jdbc.min-size": 1,
        "apicurio.datasource.jdbc.max-size": 8,
    }
    return "".join(f"{key}={value}\n" for key, value in settings.items())


def _prepare(home: Home, ports: Ports) -> Launch:
    folder = private_folder(home.local / "registry")
    for place in ("config", "data", "tmp"):
        private_folder(folder / place)
    # The registry looks for this name in the folder that it is started in.
    write_private(folder / "config" / "application.properties", registry_properties(home, ports))
    program = _unpack(home) / _RUNNER
    options = (*_OPTIONS, f"-Djava.io.tmpdir={folder / 'tmp'}")
    return Launch((str(find_java()), *options, "-jar", str(program)), folder, base_environment())


def _unpack(home: Home) -> Path:
    """Unpack the program beside the other downloads if it is missing; it appears complete or not at all."""
    (archive,) = fetch_jars(home, "registry")
    folder = archive.parent / f"apicurio-registry-{REGISTRY_VERSION}"
    if not folder.exists():
        draft = Path(tempfile.mkdtemp(dir=archive.parent, prefix=".apicurio-"))
        try:
            with tarfile.open(archive) as content:
                content.extraction_filter = getattr(tarfile, "data_filter", None)  # Python 3.11 has it from 3.11.4 on.
                content.extractall(draft)  # noqa: S202 - an archive that we have pinned
            draft.chmod(0o755)
            draft.rename(folder)
        except OSError:
            # Another stack that shares the downloads may have been faster.
            if not folder.exists():
                raise
        finally:
            shutil.rmtree(draft, ignore_errors=True)
    return folder


def _answers(ports: Ports) -> bool:
    import httpx

    try:
        with httpx.Client(trust_env=False, timeout=2.0) as client:
            return client.get(f"http://{HOST}:{ports.registry}/health/ready").is_success
    except httpx.HTTPError:
        return False
