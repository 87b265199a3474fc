"""Which connections send a login unencrypted to another machine."""

import json
from pathlib import Path
from typing import Any

import pytest

from batchledger.config.exposure import find_exposure, warn_of_exposed
from batchledger.settings.connections import Connection
from tests.integration.test_cli import ask, batchledger

PASSWORD = "s3cret"  # noqa: S105 -- what no warning may name
SASL = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.username": "a", "sasl.password": "b"}
SASL_SSL = SASL | {"security.protocol": "SASL_SSL"}
PLAIN_MAIL = {"disable_ssl": True, "disable_tls": True}


def connection(type_: str, host: str = "", password: str | None = PASSWORD, **extra: Any) -> Connection:
    return Connection("shop", type_, host=host, login="ana", password=password, schema="", extra=extra)


EXPOSED = [
    ("db.internal", connection("postgres", "db.internal")),
    *(("db.internal", connection("postgres", "db.internal", sslmode=each)) for each in ("disable", "allow", "prefer")),
    ("db.internal", connection("postgres", "db.internal", password=None, passfile="/pgpass")),
    ("db2", connection("postgres", "localhost,db2")),
    ("db.internal", connection("iceberg", "db.internal")),
    ("db", connection("iceberg", password=None, uri="postgresql+psycopg://ana:s3cret@db/lake?sslmode=allow")),
    ("catalog", connection("iceberg", "catalog", type="rest")),
    ("catalog", connection("iceberg", "catalog", password=None, type="rest", token=PASSWORD)),
    ("login.internal", connection("iceberg", "https://c", **{"type": "rest", "oauth2-server-uri": "http://login.internal"})),
    ("broker", connection("kafka", **SASL, **{"bootstrap.servers": "127.0.0.1:9092, SASL_PLAINTEXT://broker:9092"})),
    ("registry", connection("http", "http://registry:8081")),
    ("hooks", connection("http", "hooks", password=None, Authorization="Bearer x")),
    ("mail", connection("smtp", "mail", **PLAIN_MAIL)),
    ("spark.internal", connection("spark_connect", "sc://spark.internal", password=None)),
]  # fmt: skip
SAFE = [
    *(connection("postgres", "db", sslmode=each) for each in ("require", "verify-ca", "verify-full")),
    *(connection("postgres", each) for each in ("", "/run/postgresql", "localhost", "127.0.0.2", "::1")),
    connection("postgres", "db", password=None),
    connection("iceberg", "db", sslmode="verify-full"),
    connection("iceberg", uri="sqlite:////lake.db"),
    connection("iceberg", "https://catalog", type="rest"),
    connection("iceberg", "metastore", type="hive"),
    connection("kafka", **SASL_SSL, **{"bootstrap.servers": "broker:9092"}),
    connection("kafka", **SASL, **{"bootstrap.servers": "[::1]:9092,localhost:9092"}),
    connection("kafka", **{"bootstrap.servers": "broker:9092"}),
    connection("http", "https://registry:8081"),
    connection("http", "http://127.0.0.1:8081"),
    connection("http", "hooks", password=None, **{"X-Team": "data"}),
    connection("smtp", "mail", disable_ssl=True),
    connection("smtp", "mail", disable_tls=True),
    connection("smtp", "mail", password=None, **PLAIN_MAIL),
    connection("spark_connect", "sc://spark.internal", use_ssl=True),
    connection("spark_connect", "sc://spark.internal"),
    connection("spark_connect", "sc://localhost", password=None),
    connection("spark", "local[2]"),
    connection("apprise"),
]


@pytest.mark.parametrize(("host", "exposed"), EXPOSED)
def test_login_that_travels_unencrypted_to_another_machine_is_named_with_what_to_do(
    host: str, exposed: Connection
) -> None:
    told = find_exposure(exposed)
    assert told.startswith(f"Connection 'shop' sends a login to {host} unencrypted. ")
    assert " to " in told
    assert PASSWORD not in told


@pytest.mark.parametrize("safe", SAFE)
def test_login_that_is_encrypted_or_stays_on_this_machine_is_not_named(safe: Connection) -> None:
    assert find_exposure(safe) == ""


def test_each_connection_of_the_pipelines_is_named_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sink = {"type": "iceberg", "table": "shop.orders", "catalog": "exposed_lake"}
    source = {"topics": ["orders"], "schema": "id string", "connection": "exposed_kafka"}
    for name in ("orders", "refunds"):
        pipeline = {"name": name, "source": source, "sink": sink, "ledger": "exposed_db", "alerts": ["exposed_hook"]}
        (tmp_path / f"{name}.yaml").write_text(json.dumps(pipeline))
    (tmp_path / "broken.yaml").write_text("name: [")
    monkeypatch.setenv("BATCHLEDGER_PIPELINES", str(tmp_path))
    login = {"login": "ana", "password": PASSWORD}
    for name, fields in {
        "kafka": {"conn_type": "kafka", "extra": SASL | {"bootstrap.servers": "broker:9092"}},
        "lake": {"conn_type": "iceberg", "host": "db", **login},
        "db": {"conn_type": "postgres", "host": "db", "extra": {"sslmode": "prefer", "unknown": "x"}, **login},
        "hook": {"conn_type": "http", "host": "hooks", **login},
    }.items():
        monkeypatch.setenv(f"AIRFLOW_CONN_EXPOSED_{name.upper()}", json.dumps(fields))
    told = [each.split("'")[1] for each in warn_of_exposed()]
    assert told == ["exposed_kafka", "exposed_lake", "exposed_hook"]


def test_status_shows_the_warning_and_has_it_in_its_document(tmp_path: Path) -> None:
    """The pipeline cannot be looked at: it reads from a connection that is not there."""
    source = {"topics": ["orders"], "schema": "id string", "connection": "nowhere"}
    pipeline = {"name": "orders", "source": source, "sink": {"table": "orders"}, "alerts": ["exposed_hook"]}
    (tmp_path / "orders.yaml").write_text(json.dumps(pipeline))
    hook = {"conn_type": "http", "host": "hooks.internal", "login": "ana", "password": PASSWORD}
    here = {"BATCHLEDGER_LOCAL": str(tmp_path), "BATCHLEDGER_PIPELINES": str(tmp_path)}
    here["AIRFLOW_CONN_EXPOSED_HOOK"] = json.dumps(hook)
    (warning,) = ask("status", **here)["warnings"]
    assert warning.startswith("Connection 'exposed_hook' sends a login to hooks.internal unencrypted.")
    assert warning in " ".join(batchledger("status", **here).stdout.split())
