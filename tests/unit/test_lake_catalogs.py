"""Connections of Iceberg catalogs: what they say to PyIceberg and to Spark, what is refused, what is missing."""

import sys
from typing import Any

import psycopg
import pytest
from sqlalchemy import make_url
from sqlalchemy.exc import DataError, OperationalError

from batchledger.model.errors import BatchledgerError, ConfigurationError, ServiceUnavailableError, TargetChangedError
from batchledger.settings.connections import Connection
from batchledger.sinks.iceberg.catalog import LakeCatalog, spark_settings, translate_errors
from batchledger.sinks.iceberg.connection import lake_catalog
from batchledger.sinks.iceberg.files import without_login
from batchledger.sinks.iceberg.table import IcebergTable

SPARK = "org.apache.iceberg.spark.SparkCatalog"


def iceberg(**fields: Any) -> Connection:
    return Connection("lake", "iceberg", **fields)


def read(connection: Connection) -> tuple[str, dict[str, str], dict[str, str]]:
    return lake_catalog(connection)


@pytest.mark.parametrize(
    ("fields", "uri"),
    [
        ({"host": "catalog", "port": 8181}, "http://catalog:8181"),
        ({"host": "catalog", "port": 8181, "schema": "https"}, "https://catalog:8181"),
        ({"host": "https://catalog/api/v2"}, "https://catalog/api/v2"),
        ({"host": "catalog", "extra": {"uri": "https://other"}}, "https://other"),
    ],
)
def test_address_of_a_rest_catalog_is_made_of_the_fields_unless_the_extra_has_it(
    fields: dict[str, Any], uri: str
) -> None:
    extra = {"type": "rest", **fields.pop("extra", {})}
    assert read(iceberg(extra=extra, **fields))[1]["uri"] == uri


def test_login_and_password_are_the_credential_of_a_rest_catalog() -> None:
    connection = iceberg(host="catalog", login="ana", password="s3cret", extra={"type": "rest"})  # noqa: S106
    assert read(connection)[1]["credential"] == "ana:s3cret"


@pytest.mark.parametrize("kind", ["rest", "hive"])
def test_catalog_without_an_address_is_refused(kind: str) -> None:
    with pytest.raises(ConfigurationError, match=r"no address of a [^\n]*\nSet its host, or uri") as refused:
        read(iceberg(extra={"type": kind}))
    assert refused.value.subject == "lake"


def test_password_in_the_address_of_a_catalog_is_refused_and_not_told() -> None:
    with pytest.raises(ConfigurationError, match="Give it as login and password") as raised:
        read(iceberg(host="https://ana:s3cret@catalog", extra={"type": "rest"}))
    assert "s3cret" not in str(raised.value)


@pytest.mark.parametrize("name", ["auth", "ssl"])
def test_property_that_would_not_be_passed_on_is_refused(name: str) -> None:
    with pytest.raises(ConfigurationError, match=f"has {name} in its extra, which") as refused:
        read(iceberg(host="catalog", extra={"type": "rest", name: {"type": "basic"}}))
    assert refused.value.subject == "lake"


@pytest.mark.parametrize(("kind", "library"), [("hive", "thrift"), ("glue", "boto3")])
def test_library_that_a_catalog_needs_is_named_where_it_is_not_installed(
    kind: str, library: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    monkeypatch.delitem(sys.modules, f"pyiceberg.catalog.{kind}", raising=False)
    catalog = LakeCatalog(*read(iceberg(host="metastore", extra={"type": kind})))
    with pytest.raises(ConfigurationError, match=rf"pip install 'pyiceberg\[{kind}\]'") as refused:
        IcebergTable(catalog, ("shop", "orders")).identify()
    assert refused.value.subject == "lake"


@pytest.mark.parametrize(
    "fields",
    [{"host": "db", "login": "ana", "schema": "catalog"}, {"extra": {"uri": "postgresql+psycopg://ana@db/catalog"}}],
    ids=["fields", "uri"],
)
def test_waits_for_a_catalog_in_postgresql_are_bounded_unless_its_address_says_otherwise(
    fields: dict[str, Any],
) -> None:
    address = make_url(read(iceberg(**fields))[1]["uri"])
    assert address.query["connect_timeout"] == "10"
    assert address.query["tcp_user_timeout"] == "25000"
    assert "options" not in address.query


def test_options_in_the_address_of_a_catalog_stay() -> None:
    uri = "postgresql+psycopg://db/catalog?connect_timeout=3&options=endpoint%3Dblue"
    query = make_url(read(iceberg(extra={"uri": uri}))[1]["uri"]).query
    assert (query["connect_timeout"], query["options"]) == ("3", "endpoint=blue")


def test_catalog_in_another_database_gets_no_option_of_postgresql() -> None:
    assert read(iceberg(extra={"uri": "sqlite:////lake.db"}))[1]["uri"] == "sqlite:////lake.db"


def test_address_of_a_database_that_is_none_is_refused_and_not_told() -> None:
    with pytest.raises(ConfigurationError, match="no address of a database as uri") as raised:
        read(iceberg(extra={"uri": "ana:s3cret@db"}))
    assert raised.value.subject == "lake"
    assert "s3cret" not in str(raised.value)


def settings_of(**connection: Any) -> dict[str, str]:
    """Spark's settings for a connection ``lake``."""
    return spark_settings(LakeCatalog(*read(Connection("lake", "iceberg", **connection))))


def test_catalog_in_a_database_is_a_jdbc_catalog_in_spark_with_the_same_login() -> None:
    assert settings_of(
        host="db",
        port=5433,
        login="ana",
        password="p@ss/word",  # noqa: S106 (made up)
        schema="catalog",
        extra={"warehouse": "file:///lake"},
    ) == {
        "spark.sql.catalog.lake": SPARK,
        "spark.sql.catalog.lake.type": "jdbc",
        "spark.sql.catalog.lake.uri": "jdbc:postgresql://db:5433/catalog",
        "spark.sql.catalog.lake.jdbc.user": "ana",
        "spark.sql.catalog.lake.jdbc.password": "p@ss/word",
        "spark.sql.catalog.lake.jdbc.schema-version": "V1",
        "spark.sql.catalog.lake.warehouse": "file:///lake",
        "spark.sql.catalog.lake.cache-enabled": "false",
    }


def test_other_catalogs_keep_their_properties_and_what_differs_in_spark_the_extra_says() -> None:
    extra = {
        "type": "rest",
        "catalog": "shop",
        "s3.endpoint": "http://localhost:9000",
        "spark": {"s3.endpoint": "http://minio:9000", "client.region": "eu"},
    }
    assert settings_of(host="http://catalog:8181", extra=extra) == {
        "spark.sql.catalog.shop": SPARK,
        "spark.sql.catalog.shop.type": "rest",
        "spark.sql.catalog.shop.uri": "http://catalog:8181",
        "spark.sql.catalog.shop.s3.endpoint": "http://minio:9000",
        "spark.sql.catalog.shop.client.region": "eu",
        "spark.sql.catalog.shop.cache-enabled": "false",
    }


def test_what_is_meant_for_spark_is_not_told_to_pyiceberg() -> None:
    extra = {"type": "glue", "spark": {"io-impl": "org.apache.iceberg.aws.s3.S3FileIO"}}
    name, properties, spark = read(Connection("lake", "iceberg", extra=extra))
    assert (name, properties, spark) == ("lake", {"type": "glue"}, extra["spark"])


def test_spark_in_the_extra_that_is_no_object_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="Write an object there, with the properties of Spark's") as refused:
        read(Connection("lake", "iceberg", extra={"spark": "s3.endpoint=x"}))
    assert refused.value.subject == "lake"


def test_login_of_the_catalog_is_in_no_text_of_it() -> None:
    catalog = LakeCatalog("lake", {"uri": "secret"}, {"jdbc.password": "secret"})
    assert "secret" not in repr(catalog)


def test_tasks_get_by_what_files_are_opened_and_what_is_lent_and_nothing_else_of_the_connection() -> None:
    files = {"s3.secret-access-key": "of-files", "gcs.oauth2.token": "of-files", "py-io-impl": "shop.FileIO"}
    logins = dict.fromkeys(("uri", "token", "credential", "glue.secret-access-key", "header.X-Key"), "s3cret")
    lent = {"s3.secret-access-key": "lent", "token": "lent", "write.format.default": "parquet"}
    found = without_login({**files, **logins, **lent, "auth.manager": object()}, {**files, **logins})
    assert found == {**files, **lent}


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (DataError("insert", {}, psycopg.errors.StringDataRightTruncation("value too long")), TargetChangedError),
        (OperationalError("insert", {}, psycopg.errors.AdminShutdown("going down")), ServiceUnavailableError),
    ],
    ids=["too long", "down"],
)
def test_value_that_the_database_of_a_catalog_does_not_take_is_no_database_that_is_down(
    error: Exception, expected: type[BatchledgerError]
) -> None:
    with pytest.raises(expected), translate_errors("write", "orders"):
        raise error
