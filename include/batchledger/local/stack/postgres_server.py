"""The PostgreSQL server: the warehouse and, in a database of its own, Airflow's metadata; under ``.local/postgres``.

PostgreSQL refuses to run as root. If root starts it, it runs as ``nobody``. If ``nobody`` cannot reach the local folder
(a checkout below a closed home), it lives in a folder under /var/tmp, and ``.local/postgres`` is a link to that.
"""

import contextlib
import hashlib
import os
import pwd
import shutil
import stat
import tarfile
import urllib.parse
import zipfile
from pathlib import Path

import psutil
from psycopg.conninfo import make_conninfo
from psycopg.pq import PGconn, Ping

from batchledger.local.stack import processes
from batchledger.local.stack.database_roles import DatabaseServer, host_rules
from batchledger.local.stack.defaults import (
    AIRFLOW_DATABASE_USER,
    DATABASE_SUPERUSER,
    DATABASE_USER,
    LEDGER_USER,
    POSTGRES_VERSION,
)
from batchledger.local.stack.home import Credentials, Home, Ports, private_folder, write_private
from batchledger.local.stack.jars import fetch_jars, postgres_platform
from batchledger.local.stack.machine import HOST
from batchledger.local.stack.processes import Launch, SystemUser
from batchledger.local.stack.service import Service, base_environment
from batchledger.model.errors import SetupError

HOST_RULES = host_rules(f"{HOST}/32")


def postgres_service(home: Home, ports: Ports, credentials: Credentials) -> Service:
    """The server; it is healthy when it lets clients log in. Its roles may be missing yet."""
    return Service(
        name="postgres",
        ports=("postgres",),
        prepare=lambda: _prepare(home, ports, credentials),
        is_healthy=lambda _: _answers(ports),
    )


def database_server(ports: Ports, credentials: Credentials) -> DatabaseServer:
    """Where it listens, and the passwords of its roles."""
    password_by_role = {
        LEDGER_USER: credentials.ledger_password,
        DATABASE_USER: credentials.database_password,
        AIRFLOW_DATABASE_USER: credentials.airflow_database_password,
        DATABASE_SUPERUSER: credentials.database_superuser_password,
    }
    return DatabaseServer(HOST, ports.postgres, password_by_role)


def connection_string(ports: Ports, credentials: Credentials, database: str, role: str = DATABASE_USER) -> str:
    """Return a connection string for this process only: it holds the password."""
    return database_server(ports, credentials).dsn(role, database)


def public_dsn(home: Home, ports: Ports, database: str, dialect: str = "postgresql", role: str = DATABASE_USER) -> str:
    """Return a URL that names the file of the password instead of the password."""
    passfile = urllib.parse.quote(str(home.database_password_file))
    return f"{dialect}://{role}@{HOST}:{ports.postgres}/{database}?passfile={passfile}"


WITHOUT_VALUES = {"log_min_messages": "log", "log_min_error_statement": "panic", "log_error_verbosity": "terse"}
"""An error quotes rows, values and statements, so its client alone has it. Starts and refused logins are logged."""


def server_configuration(ports: Ports) -> str:
    """Durable as by default (fsync, synchronous commit); sized for one person's machine; no socket file.

    The password is random, so hashing it thousands of times would not protect it better; each connection would only
    take twice as long.
    """
    settings = {
        "listen_addresses": f"'{HOST}'",
        "port": ports.postgres,
        "unix_socket_directories": "''",
        "password_encryption": "scram-sha-256",
        "scram_iterations": 1,
        "max_connections": 100,
        "shared_buffers": "512MB",
        "wal_buffers": "64MB",
        "min_wal_size": "1GB",
        "work_mem": "16MB",
        "maintenance_work_mem": "128MB",
        "max_wal_size": "4GB",
        "checkpoint_timeout": "15min",
        "jit": "off",
        "timezone": "'UTC'",
        "log_timezone": "'UTC'",
        **WITHOUT_VALUES,
    }
    return "".join(f"{key} = {value}\n" for key, value in settings.items())


def _prepare(home: Home, ports: Ports, credentials: Credentials) -> Launch:
    server = database_server(ports, credentials)
    # Any port: a proxy may stand before the server.
    entries = [
        f"{HOST}:*:*:{role}:{password}\n"
        for role, password in server.password_by_role.items()
        if role != DATABASE_SUPERUSER
    ]
    write_private(home.database_password_file, "".join(entries))
    account = _account()
    folder = _find_folder(home, account)
    programs = _unpack(home, folder)
    data = folder / "data"
    if not (data / "PG_VERSION").exists():
        _initialise(home, programs, data, credentials, account)
    (data / "postgresql.conf").write_text(server_configuration(ports))
    (data / "pg_hba.conf").write_text(HOST_RULES)
    _drop_stale_lock(data)
    return Launch(
        argv=(str(programs / "postgres"), "-D", str(data)),
        folder=data,
        environment=base_environment(),
        account=account,
        private_folder=data,
    )


def _account() -> SystemUser | None:
    if os.geteuid() != 0:
        return None
    try:
        user = pwd.getpwnam("nobody")
    except KeyError:
        raise SetupError(
            "PostgreSQL cannot be started.",
            why="It does not run as root, and this machine has no user `nobody` to run it as.",
            advice="Start the services as another user than root, or create the user `nobody`.",
        ) from None
    return SystemUser(user.pw_uid, user.pw_gid)


def _find_folder(home: Home, account: SystemUser | None) -> Path:
    """Return the folder for programs and data, which the account can pass through; it is created if missing."""
    folder = home.local / "postgres"
    if account is not None and not folder.is_dir() and not all(_is_open(parent) for parent in folder.parents):
        digest = hashlib.sha256(str(home.local).encode()).hexdigest()[:16]
        elsewhere = Path("/var/tmp") / f"batchledger-{digest}"  # noqa: S108 - made anew, never taken over
        shutil.rmtree(elsewhere, ignore_errors=True)  # Left by a `.local` that was deleted.
        elsewhere.mkdir(mode=0o700)
        folder.unlink(missing_ok=True)
        folder.symlink_to(elsewhere)
    private_folder(folder)
    if account is not None:
        os.chown(folder, -1, account.gid)
        folder.chmod(0o710)
    return folder.resolve()


def _is_open(folder: Path) -> bool:
    return bool(folder.stat().st_mode & stat.S_IXOTH)


def _unpack(home: Home, folder: Path) -> Path:
    """Unpack the server's programs if they are missing; they appear complete or not at all."""
    programs = folder / f"postgresql-{POSTGRES_VERSION}"
    if not programs.exists():
        (jar,) = fetch_jars(home, "postgres", postgres_platform())
        draft = folder / f".{programs.name}"
        shutil.rmtree(draft, ignore_errors=True)
        with zipfile.ZipFile(jar) as archive:
            (packed,) = (name for name in archive.namelist() if name.endswith(".txz"))
            with archive.open(packed) as stream, tarfile.open(fileobj=stream, mode="r|xz") as content:
                content.extraction_filter = getattr(tarfile, "data_filter", None)  # Python 3.11 has it from 3.11.4 on.
                content.extractall(draft)  # noqa: S202 - an archive that we have pinned
        draft.chmod(0o755)
        draft.rename(programs)
    return programs / "bin"


def _initialise(home: Home, programs: Path, data: Path, credentials: Credentials, account: SystemUser | None) -> None:
    """Create the data folder in one step: a half-written one has another name."""
    draft, password_file = data.with_name(".data"), data.with_name(".password")
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir(mode=0o700)
    write_private(password_file, credentials.database_superuser_password)
    if account is not None:
        for path in (draft, password_file):
            os.chown(path, account.uid, account.gid)
    access = (f"--username={DATABASE_SUPERUSER}", f"--pwfile={password_file}", "--auth=scram-sha-256")
    locale = ("--encoding=UTF8", "--locale=C", "--locale-provider=builtin", "--builtin-locale=C.UTF-8")
    argv = (str(programs / "initdb"), *access, *locale, "--set=scram_iterations=1", "-D", str(draft))
    try:
        processes.run(home, "postgres", Launch(argv, draft, base_environment(), account), 120)
    finally:
        password_file.unlink()
    draft.rename(data)


def _drop_stale_lock(data: Path) -> None:
    """Remove the lock of a killed server: another process may have its number, and the server would believe it."""
    lock = data / "postmaster.pid"
    with contextlib.suppress(FileNotFoundError, psutil.NoSuchProcess):
        server = psutil.Process(int(lock.read_text().split()[0]))
        if server.cwd() == str(data):
            raise SetupError(
                f"Another PostgreSQL server, process {server.pid}, already works in {data}.",
                advice=f"End it first: kill {server.pid}",
            )
    lock.unlink(missing_ok=True)


def _answers(ports: Ports) -> bool:
    place = make_conninfo(host=HOST, port=ports.postgres, user=DATABASE_USER, dbname="postgres", connect_timeout=5)
    return PGconn.ping(place.encode()) == Ping.OK
