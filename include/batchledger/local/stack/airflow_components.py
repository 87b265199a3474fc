"""Airflow's api-server, scheduler, dag-processor and triggerer, each a process of its own; under ``.local/airflow``.

`airflow standalone` is not used, because it leaves its children running when it is signalled. All settings are in one
``airflow.cfg`` that only its owner can read, so another program needs AIRFLOW_HOME and nothing else.
"""

import configparser
import functools
import io
import json
import sys
from datetime import datetime

import psycopg

from batchledger.local.stack import processes
from batchledger.local.stack.clients import environment
from batchledger.local.stack.connections import write_connections
from batchledger.local.stack.defaults import AIRFLOW_DATABASE, AIRFLOW_DATABASE_USER, AIRFLOW_VERSION
from batchledger.local.stack.home import Credentials, Home, Ports, private_folder, write_private
from batchledger.local.stack.machine import HOST
from batchledger.local.stack.postgres_server import connection_string, public_dsn
from batchledger.local.stack.processes import Launch, ServiceRecord
from batchledger.local.stack.service import Service, base_environment

ADMIN = "admin"
# May look at everything and act on nothing.
VIEWER = "viewer"
# Another person who may act, to confirm what the administrator asks for.
REVIEWER = "reviewer"
DAG_FILE = '''\
"""Batchledger's DAGs for Airflow: one for each pipeline file, and three for upkeep."""

from batchledger.interfaces.airflow.dags import build_dags

globals().update(build_dags())
'''
_MIGRATED = f"migrated by Airflow {AIRFLOW_VERSION}"
# A component's place in the API server's report, and its command. Without --skip-serve-logs a component
# would serve its log files on every network interface; the API server reads them from disk.
_COMMAND_BY_COMPONENT = {
    "api-server": ("api-server",),
    "scheduler": ("scheduler", "--skip-serve-logs"),
    "dag-processor": ("dag-processor",),
    "triggerer": ("triggerer", "--skip-serve-logs"),
}


def airflow_services(home: Home, ports: Ports) -> list[Service]:
    """The four components; each is healthy when the API server reports a heartbeat that is newer than the process."""
    return [
        Service(
            name=component,
            ports=("airflow",) if component == "api-server" else (),
            prepare=functools.partial(_launch, home, command),
            is_healthy=functools.partial(_is_healthy, ports, component),
            silence_seconds=180,
        )
        for component, command in _COMMAND_BY_COMPONENT.items()
    ]


def airflow_url(ports: Ports) -> str:
    """Where a browser and the REST API's clients find Airflow."""
    return f"http://{HOST}:{ports.airflow}"


def airflow_configuration(home: Home, ports: Ports, credentials: Credentials) -> str:
    """The text of airflow.cfg: only what differs from Airflow's defaults."""
    folder = home.local / "airflow"
    bundles = [
        {"name": name, "classpath": "airflow.dag_processing.bundles.local.LocalDagBundle", "kwargs": where}
        for name, where in (("dags-folder", {}), ("more-dags", {"path": str(home.more_dags)}))
    ]
    secrets_backend = {"connections_file_path": str(home.connections_file)}
    database = functools.partial(public_dsn, home, ports, AIRFLOW_DATABASE, role=AIRFLOW_DATABASE_USER)
    settings: dict[str, dict[str, object]] = {
        "core": {
            "dags_folder": home.root / "dags",
            "plugins_folder": home.root / "plugins",
            "executor": "LocalExecutor",
            "parallelism": 4,
            "load_examples": False,
            "fernet_key": credentials.airflow_fernet_key,
            "hostname_callable": "socket.gethostname",
            "execution_api_server_url": f"{airflow_url(ports)}/execution/",
            "simple_auth_manager_users": f"{ADMIN}:admin,{REVIEWER}:user,{VIEWER}:viewer",
            "simple_auth_manager_passwords_file": home.airflow_password_file,
            "min_serialized_dag_update_interval": 2,
        },
        "database": {
            # Airflow 3.3 shows no graph of an asset with psycopg: PostgreSQL refuses its query.
            "sql_alchemy_conn": database(dialect="postgresql+psycopg2"),
            "sql_alchemy_conn_async": database(dialect="postgresql+asyncpg"),
        },
        "api": {
            "host": HOST,
            "port": ports.airflow,
            "base_url": airflow_url(ports),
            "secret_key": credentials.airflow_secret_key,
            "workers": 1,
        },
        "api_auth": {"jwt_secret": credentials.airflow_jwt_secret, "jwt_issuer": "batchledger"},
        # The idle loop costs 4 % of a core and brings a four-task run from 5 s to 1.6 s.
        "scheduler": {"scheduler_idle_sleep_time": 0.1},
        # A supervisor that sees its task's sockets close before the process has ended waits so long until it looks
        # again: with the default of 5 s every fourth task ended 5 s late.
        "workers": {"min_heartbeat_interval": 1},
        "dag_processor": {
            "dag_bundle_config_list": json.dumps(bundles),
            "refresh_interval": 5,
            "min_file_process_interval": 5,
            "parsing_processes": 1,
        },
        "logging": {
            "base_log_folder": folder / "logs",
            "colored_console_log": False,
            "file_task_handler_new_folder_permissions": "0o700",
            "file_task_handler_new_file_permissions": "0o600",
            "namespace_levels": "great_expectations=WARNING",
        },
        "secrets": {
            "backend": "airflow.secrets.local_filesystem.LocalFilesystemBackend",
            "backend_kwargs": json.dumps(secrets_backend),
        },
        "usage_data_collection": {"enabled": False},
    }
    parser = configparser.ConfigParser(interpolation=None)
    parser.read_dict(
        {
            section: {key: str(value).replace("%", "%%") for key, value in options.items()}
            for section, options in settings.items()
        }
    )
    text = io.StringIO()
    parser.write(text)
    return text.getvalue()


def configure_airflow(home: Home, ports: Ports, credentials: Credentials, advertised: Ports | None = None) -> None:
    """Write Airflow's settings, the passwords of its users and the connections, to the ``advertised`` ports.

    A checkout has the DAG file. For an installed package it is written anew, because the package may be newer.
    """
    dag_file = home.root / "dags" / "batchledger_dags.py"
    if home.root.is_relative_to(home.local) or not dag_file.exists():
        write_private(dag_file, DAG_FILE)
    for folder in (home.local / "airflow", home.more_dags, home.docs, home.lake):
        private_folder(folder)
    write_private(home.local / "airflow" / "airflow.cfg", airflow_configuration(home, ports, credentials))
    passwords = {
        ADMIN: credentials.airflow_password,
        REVIEWER: credentials.airflow_reviewer_password,
        VIEWER: credentials.airflow_viewer_password,
    }
    write_private(home.airflow_password_file, json.dumps(passwords) + "\n")
    write_connections(home, advertised or ports, credentials)


def migrate_airflow(home: Home, ports: Ports, credentials: Credentials) -> None:
    """Bring Airflow's own database up to date. A comment in the database says so, which makes a repetition cheap."""
    dsn = connection_string(ports, credentials, AIRFLOW_DATABASE, AIRFLOW_DATABASE_USER)
    with psycopg.connect(dsn, autocommit=True) as connection:
        query = "SELECT shobj_description(oid, 'pg_database') FROM pg_database WHERE datname = current_database()"
        if connection.execute(query).fetchone() == (_MIGRATED,):
            return
        processes.run(home, "airflow-database", _launch(home, ("db", "migrate")), deadline_seconds=300)
        connection.execute(f"COMMENT ON DATABASE {AIRFLOW_DATABASE} IS '{_MIGRATED}'")


def _launch(home: Home, command: tuple[str, ...]) -> Launch:
    return Launch(
        argv=(sys.executable, "-m", "airflow", *command),
        folder=home.local / "airflow",
        # The command line starts these and is quiet itself; but their task logs have to say what was done.
        environment=base_environment() | environment(home) | {"AIRFLOW__LOGGING__LOGGING_LEVEL": "INFO"},
    )


def _is_healthy(ports: Ports, component: str, record: ServiceRecord) -> bool:
    import httpx

    try:
        answer = httpx.get(f"{airflow_url(ports)}/api/v2/monitor/health", timeout=5, trust_env=False)
    except httpx.TransportError:
        return False
    if answer.status_code != httpx.codes.OK:
        return False
    if component == "api-server":
        return True
    name = component.replace("-", "_")
    report = answer.json().get(name, {})
    heartbeat = report.get(f"latest_{name}_heartbeat")
    return (
        report.get("status") == "healthy"
        and heartbeat is not None
        and datetime.fromisoformat(heartbeat).timestamp() >= record.created
    )
