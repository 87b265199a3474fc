"""Connections that are read without Airflow are the ones that Airflow itself finds."""

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.models.connection import Connection as StoredConnection
from airflow.sdk import Connection
from airflow.secrets.local_filesystem import LocalFilesystemBackend
from hypothesis import given
from hypothesis import strategies as st

from batchledger.local.stack.connections import list_connections
from batchledger.local.stack.home import Credentials, Home, Ports
from batchledger.settings import plain_lookup
from batchledger.settings.plain_lookup import find_plainly

ENVIRON = {"AIRFLOW_HOME": "/nowhere"}
BACKEND = "airflow.secrets.local_filesystem.LocalFilesystemBackend"
TAKEN = (
    "postgres://etl:s3cret@db.internal:5432/warehouse?sslmode=require",
    "postgresql://db/w",
    "spark-connect://localhost:15002/?use_ssl=true",
    "http://https%3A%2F%2Fregistry.internal%2Fpath",
    "http://https://user:p%40ss@Hooks.internal:8443/path?Authorization=Bearer%20x",
    "http://https://Hooks.internal/",
    "postgres://%2Fvar%2Frun%2FPostgreSQL:5432/w",
    "POSTGRES://Db.Internal/w",
    "kafka://?__extra__=%7B%22bootstrap.servers%22%3A+%22h%3A9092%22%7D",
    "kafka:///?bootstrap.servers=h%3A9092&empty=",
    "generic://:secret@",
    "generic://login@",
    "no scheme at all",
    '{"conn_type": "kafka", "extra": {"bootstrap.servers": "h:9092"}}',
    '{"conn_type": "kafka", "extra": "{\\"a\\": [1, null]}"}',
    '{"conn_type": "spark-connect", "host": "sc://h", "port": "15002"}',
    '{"conn_type": "postgresql", "login": "", "password": "", "port": 0, "extra": null, "description": "x"}',
    '  {"host": "h", "extra": ""}  ',
    "{}",
)
REFUSED = (
    "",
    "   ",
    "{not json",
    '{"conn_type": 5}',
    '{"conn_type": "kafka", "port": "many"}',
    '{"conn_type": "kafka", "port": [1]}',
    '{"conn_type": "kafka", "uri": "kafka://h"}',
    '{"conn_type": "kafka", "bootstrap.servers": "h"}',
    '{"conn_type": "kafka", "extra": "not json"}',
    "a://b://c://d",
    "http://user:p%40ss@https://hooks.internal:8443/path",
    "postgres://h:port/w",
)


@pytest.fixture(autouse=True)
def without_airflow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look as a process does that has not imported Airflow. The modules of this one stay as they are."""
    has_imported(monkeypatch)


def has_imported(monkeypatch: pytest.MonkeyPatch, *modules: str) -> None:
    monkeypatch.setattr(plain_lookup, "sys", SimpleNamespace(modules=modules))


def fields_of(found: Connection | StoredConnection) -> dict[str, Any]:
    """Return what Batchledger reads of a connection of Airflow's."""
    names = ("host", "port", "login", "password", "schema")
    type_ = (found.conn_type or "").replace("-", "_")
    return {each: getattr(found, each) for each in names} | {"conn_type": type_, "extra": found.extra_dejson}


def read(found: dict[str, Any] | None) -> dict[str, Any]:
    """Return the same of what was read without it."""
    assert found is not None
    names = ("host", "port", "login", "password", "schema")
    return {each: found.get(each) for each in names} | {
        "conn_type": found["conn_type"].replace("-", "_"),
        "extra": found["extra"],
    }


def by_airflow(text: str) -> Connection:
    """Read the text of a variable as Airflow's secrets backends do."""
    text = text.strip()
    return Connection.from_json(text, "it") if text.startswith("{") else Connection(conn_id="it", uri=text)


@pytest.mark.parametrize("text", TAKEN)
def test_a_variable_is_read_as_airflow_reads_it(text: str) -> None:
    assert read(find_plainly("it", {**ENVIRON, "AIRFLOW_CONN_IT": text})) == fields_of(by_airflow(text))


@given(
    type_=st.sampled_from(("postgres", "spark-connect", "spark_connect", "http")),
    host=st.sampled_from((None, "h", "H.x", "sc://h", "https://Hooks.x", "/var/Run")),
    login=st.none() | st.text("aZ%@:/ ?&#é", min_size=1),
    password=st.none() | st.text("aZ%@:/ ?&#é", min_size=1),
    schema=st.none() | st.text("aZ%@:/ ?&#é", min_size=1),
    port=st.none() | st.integers(1, 65535),
    extra=st.none() | st.dictionaries(st.text("ab.&="), st.text("c%&= ") | st.integers() | st.lists(st.booleans())),
    as_json=st.booleans(),
)
def test_what_airflow_writes_is_read_as_airflow_reads_it(as_json: bool, **fields: Any) -> None:
    extra = None if fields["extra"] is None else json.dumps(fields["extra"])
    connection = Connection(conn_id="it", conn_type=fields.pop("type_"), **{**fields, "extra": extra})
    text = connection.as_json() if as_json else connection.get_uri()
    found = find_plainly("it", {**ENVIRON, "AIRFLOW_CONN_IT": text})
    try:
        expected = fields_of(by_airflow(text))
    except Exception:  # noqa: BLE001 -- whatever Airflow refuses is left to it
        assert found is None
    else:
        assert read(found) == expected


@pytest.mark.parametrize("text", REFUSED)
def test_airflow_is_asked_about_a_variable_that_it_might_refuse(text: str) -> None:
    assert find_plainly("it", {**ENVIRON, "AIRFLOW_CONN_IT": text}) is None


def test_airflow_is_asked_for_what_the_environment_does_not_have_and_in_a_process_that_has_imported_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    environ = {**ENVIRON, "AIRFLOW_CONN_IT": "http://h", "AIRFLOW_CONN_TEAM___IT": "http://h"}
    assert find_plainly("it", environ) is not None
    assert find_plainly("other", environ) is None
    # Airflow of several teams reads such an id in a way of its own.
    assert find_plainly("team___it", environ) is None
    has_imported(monkeypatch, "airflow.sdk")
    assert find_plainly("it", environ) is None


@pytest.fixture
def settings(tmp_path: Path) -> Callable[..., dict[str, str]]:
    """Write Airflow's settings, and return an environment that has them and one connection besides."""

    def write(text: str) -> dict[str, str]:
        (tmp_path / "airflow.cfg").write_text(text)
        return {"AIRFLOW_HOME": str(tmp_path), "AIRFLOW_CONN_IT": "http://environment"}

    return write


@pytest.mark.parametrize(
    "text",
    [
        "[secrets]\nbackend = airflow.providers.hashicorp.secrets.vault.VaultBackend",
        "[secrets]\nbackend_cmd = cat backend",
        "[workers]\nsecrets_backend = airflow.providers.hashicorp.secrets.vault.VaultBackend",
        f"[secrets]\nbackend = {BACKEND}",
        f'[secrets]\nbackend = {BACKEND}\nbackend_kwargs = {{"variables_file_path": "x.json"}}',
        f'[secrets]\nbackend = {BACKEND}\nbackend_kwargs = {{"connections_file_path": "x.yaml"}}',
        f'[secrets]\nbackend = {BACKEND}\nbackend_kwargs = {{"connections_file_path": "$HOME/x.json"}}',
        f'[secrets]\nbackend = {BACKEND}\nbackend_kwargs_secret = x\nbackend_kwargs = {{"connections_file_path": "x"}}',
        f'[secrets]\nbackend = {BACKEND}\nbackend_kwargs = {{"connections_file_path": null}}',
        f"[secrets]\nbackend = {BACKEND}\nbackend_kwargs = [1]",
        "not settings",
    ],
)
def test_airflow_is_asked_if_a_secrets_backend_might_come_before_the_environment(
    settings: Callable[..., dict[str, str]], text: str
) -> None:
    assert find_plainly("it", settings(text)) is None


@pytest.mark.parametrize("name", ["AIRFLOW__SECRETS__BACKEND", "AIRFLOW__WORKERS__SECRETS_BACKEND_KWARGS"])
def test_airflow_is_asked_if_the_environment_has_settings_of_a_backend(
    settings: Callable[..., dict[str, str]], name: str
) -> None:
    assert find_plainly("it", settings("") | {name: ""}) is None


def test_settings_without_a_backend_leave_the_environment(settings: Callable[..., dict[str, str]]) -> None:
    environ = settings("[core]\nexecutor = LocalExecutor\n[secrets]\nbackend =\nuse_cache = False\n[workers]\nx = 1")
    found = find_plainly("it", environ)
    assert found is not None
    assert found["host"] == "environment"


def write_file(folder: Path, connections: object) -> str:
    """Write the file of Airflow's local backend, and return the settings that name it."""
    file = folder / "100%.json"
    file.write_text(json.dumps(connections))
    told = json.dumps({"connections_file_path": str(file)}).replace("%", "%%")
    return f"[secrets]\nbackend = {BACKEND}\nbackend_kwargs = {told}"


def test_the_local_file_comes_before_the_environment_and_is_read_as_airflow_reads_it(
    settings: Callable[..., dict[str, str]], tmp_path: Path
) -> None:
    home = Home(root=tmp_path, local=tmp_path, cache=tmp_path, pipelines=tmp_path)
    connections = list_connections(home, Ports(*range(1, 7)), Credentials())
    connections["it"] = {"conn_type": "postgresql", "description": None, "port": 5, "login": "a", "extra": {}}
    environ = settings(write_file(tmp_path, connections))
    backend = LocalFilesystemBackend(connections_file_path=str(tmp_path / "100%.json"))
    found = {name: read(find_plainly(name, environ)) for name in connections}
    for name in connections:
        expected = backend.get_connection(name)
        assert expected is not None
        assert found[name] == fields_of(expected)


@pytest.mark.parametrize(
    "neighbour",
    ["http://h", [], {}, {"conn_type": "x", "kind": "y"}, {"conn_type": "x", "extra": "{}"},
     {"conn_type": "x", "port": "5"}, {"conn_type": "x", "password": ""}],
)  # fmt: skip
def test_airflow_is_asked_if_it_might_refuse_or_change_a_connection_of_the_local_file(
    settings: Callable[..., dict[str, str]], tmp_path: Path, neighbour: object
) -> None:
    connections = {"mine": {"conn_type": "http"}, "neighbour": neighbour}
    assert find_plainly("mine", settings(write_file(tmp_path, connections))) is None
    assert find_plainly("mine", settings(write_file(tmp_path, {"mine": {"conn_type": "http"}}))) is not None
