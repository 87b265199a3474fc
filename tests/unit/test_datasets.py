"""Names of tables and topics: OpenLineage's and Airflow's are made of the same values, and hold no login."""

import pytest
from airflow.providers.postgres.assets.postgres import convert_asset_to_openlineage
from airflow.sdk import Asset

from batchledger.database.datasets import name_database_table
from batchledger.model.datasets import Dataset, name_location, name_table, name_topic

TABLE = ("public", "orders")


@pytest.mark.parametrize(
    ("hosts", "ports", "namespace"),
    [
        ("db", "5433", "postgres://db:5433"),
        ("db", "", "postgres://db:5432"),
        ("db-a,db-b", "5433,5434", "postgres://db-a:5433"),
        ("/var/run/postgresql", "5432", "postgres://localhost:5432"),
        ("", "", "postgres://localhost:5432"),
        ("::1", "5432", "postgres://[::1]:5432"),
    ],
)
def test_table_is_named_by_its_first_server_database_schema_and_name(hosts: str, ports: str, namespace: str) -> None:
    found = name_table(hosts, ports, "shop", TABLE)
    assert found == Dataset(namespace, "shop.public.orders", f"{namespace}/shop/public/orders")


@pytest.mark.parametrize(
    "dsn", ["host=db port=5433 dbname=shop", "host=db,x port=5433 dbname=shop", "host=db dbname=shop"]
)
def test_airflow_leaves_the_uri_as_it_is_and_its_provider_gives_openlineage_the_same_name(dsn: str) -> None:
    found = name_database_table(dsn, TABLE)
    asset = Asset(found.uri)
    assert (asset.uri, asset.name) == (found.uri, found.uri)
    converted = convert_asset_to_openlineage(asset, None)
    assert (converted.namespace, converted.name) == (found.namespace, found.name)


def test_what_a_connection_leaves_out_is_as_libpq_would_have_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PGHOST", "PGPORT", "PGDATABASE", "PGUSER"):
        monkeypatch.delenv(name, raising=False)
    assert name_database_table("user=ana", TABLE).uri == "postgres://localhost:5432/ana/public/orders"
    monkeypatch.setenv("PGHOST", "db")
    monkeypatch.setenv("PGDATABASE", "shop")
    assert name_database_table("user=ana", TABLE).uri == "postgres://db:5432/shop/public/orders"


@pytest.mark.parametrize(
    ("servers", "namespace"),
    [
        ("broker:9093", "kafka://broker:9093"),
        ("broker", "kafka://broker:9092"),
        ("a:9092, b:9092", "kafka://a:9092"),
        ("SASL_SSL://a:9094", "kafka://a:9094"),
        ("[::1]:9092", "kafka://[::1]:9092"),
    ],
)
def test_topic_is_named_by_the_first_bootstrap_server(servers: str, namespace: str) -> None:
    found = name_topic(servers, "orders.v1")
    assert found == Dataset(namespace, "orders.v1", f"{namespace}/orders.v1")
    assert Asset(found.uri).uri == found.uri


@pytest.mark.parametrize(
    ("location", "expected"),
    [
        ("s3://lake/shop/orders", Dataset("s3://lake", "shop/orders", "s3://lake/shop/orders")),
        ("s3a://lake/shop/orders/", Dataset("s3://lake", "shop/orders", "s3://lake/shop/orders")),
        ("gs://lake/shop/orders", Dataset("gs://lake", "shop/orders", "gs://lake/shop/orders")),
        ("hdfs://name:8020/shop/orders", Dataset("hdfs://name:8020", "/shop/orders", "hdfs://name:8020/shop/orders")),
        ("file:///data/shop/orders", Dataset("file", "/data/shop/orders", "file:///data/shop/orders")),
        ("/data/shop/orders", Dataset("file", "/data/shop/orders", "file:///data/shop/orders")),
        ("/data/a#b?c/orders", Dataset("file", "/data/a#b?c/orders", "file:///data/a%23b%3Fc/orders")),
        (
            "abfss://lake@acme.dfs.core.windows.net/shop/orders",
            Dataset(
                "abfss://lake@acme.dfs.core.windows.net",
                "shop/orders",
                "abfss://lake@acme.dfs.core.windows.net/shop/orders",
            ),
        ),
    ],
)
def test_iceberg_table_is_named_by_where_its_files_lie(location: str, expected: Dataset) -> None:
    found = name_location(location)
    assert found == expected
    assert Asset(found.uri).uri == found.uri


@pytest.mark.parametrize(
    "found",
    [
        name_database_table("host=db user=ana password=s3cret dbname=shop options=s3cret", TABLE),
        name_topic("SASL_SSL://ana:s3cret@broker:9092", "orders"),
        name_location("s3://ana:s3cret@lake/shop/orders?token=s3cret#s3cret"),
        name_location("file:///data/shop?token=s3cret"),
    ],
    ids=lambda found: found.namespace,
)
def test_no_name_holds_a_user_a_password_or_a_query(found: Dataset) -> None:
    assert "s3cret" not in repr(found)
    assert "ana" not in repr(found)
