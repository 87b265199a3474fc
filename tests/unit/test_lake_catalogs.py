"""Connections of Iceberg catalogs: what they say, what is refused, and what has to be installed for them."""

import sys
from typing import Any

import pytest

from batchledger.connections import Connection, lake_catalog
from batchledger.errors import ConfigurationError
from batchledger.iceberg.catalog import LakeCatalog
from batchledger.iceberg.table import IcebergTable


def iceberg(**fields: Any) -> Connection:
    return Connection("lake", "iceberg", **fields)


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
    assert lake_catalog(iceberg(extra=extra, **fields))[1]["uri"] == uri


def test_login_and_password_are_the_credential_of_a_rest_catalog() -> None:
    connection = iceberg(host="catalog", login="ana", password="s3cret", extra={"type": "rest"})  # noqa: S106
    assert lake_catalog(connection)[1]["credential"] == "ana:s3cret"


@pytest.mark.parametrize("kind", ["rest", "hive"])
def test_catalog_without_an_address_is_refused(kind: str) -> None:
    with pytest.raises(ConfigurationError, match=r"connection lake has no address of a .*: a host, or uri"):
        lake_catalog(iceberg(extra={"type": kind}))


def test_password_in_the_address_of_a_catalog_is_refused_and_not_told() -> None:
    with pytest.raises(ConfigurationError, match="give it as login and password") as raised:
        lake_catalog(iceberg(host="https://ana:s3cret@catalog", extra={"type": "rest"}))
    assert "s3cret" not in str(raised.value)


@pytest.mark.parametrize("name", ["auth", "ssl"])
def test_property_that_would_not_be_passed_on_is_refused(name: str) -> None:
    with pytest.raises(ConfigurationError, match=f"connection lake has {name} in its extra, which is not passed on"):
        lake_catalog(iceberg(host="catalog", extra={"type": "rest", name: {"type": "basic"}}))


@pytest.mark.parametrize(("kind", "library"), [("hive", "thrift"), ("glue", "boto3")])
def test_library_that_a_catalog_needs_is_named_where_it_is_not_installed(
    kind: str, library: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    monkeypatch.delitem(sys.modules, f"pyiceberg.catalog.{kind}", raising=False)
    catalog = LakeCatalog(*lake_catalog(iceberg(host="metastore", extra={"type": kind})))
    with pytest.raises(
        ConfigurationError, match=rf"catalog lake cannot be opened: .*pip install 'pyiceberg\[{kind}\]'"
    ):
        IcebergTable(catalog, ("shop", "orders")).identify()
