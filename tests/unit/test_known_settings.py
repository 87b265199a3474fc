"""Settings in the extra of a connection that no client would see are refused by name, with the nearest known one."""

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from psycopg.conninfo import conninfo_to_dict
from psycopg.pq import Conninfo
from pyspark.sql.connect.client import DefaultChannelBuilder

from batchledger.model.errors import ConfigurationError
from batchledger.model.stream_address import StreamAddress
from batchledger.settings.connections import (
    Connection,
    check_extra,
    http_request,
    kafka_options,
    postgres_dsn,
    spark_server,
    stream_address,
    webhook_tls,
)
from batchledger.settings.known_settings import POSTGRES_SETTINGS
from batchledger.settings.registry_options import registry_settings
from batchledger.sinks.iceberg.catalog import LakeCatalog, spark_settings
from batchledger.sinks.iceberg.connection import lake_catalog


def read(connection: Connection) -> object:
    """What every use of a connection begins with."""
    match connection.type:
        case "postgres":
            return postgres_dsn(connection)
        case "iceberg":
            return lake_catalog(connection)
        case "http":
            return webhook_tls(connection)
        case "spark_connect":
            stream_address(connection)
            return spark_server(connection)
    return check_extra(connection)


@pytest.mark.parametrize(
    ("type_", "extra", "hint"),
    [
        ("postgres", {"sslmod": "verify-full"}, "sslmod in its extra, .* Did you mean sslmode?"),
        ("postgres", {"channel_bindng": "require"}, "Did you mean channel_binding?"),
        ("postgres", {"options": "-c x=y"}, "options in its extra, .* Allowed are sslmode, "),
        ("postgres", {"sslkeylogfile": "/keys"}, "sslkeylogfile in its extra"),
        ("postgres", {"extra__postgres__sslmode": "require"}, "Did you mean sslmode?"),
        ("iceberg", {"sslmod": "verify-full"}, "Did you mean sslmode?"),
        ("iceberg", {"werehouse": "s3://lake"}, "Did you mean warehouse?"),
        ("iceberg", {"type": "rest", "sslmode": "verify-full"}, "sslmode in its extra"),
        ("iceberg", {"type": "glue", "ssl": {"cabundle": "x"}}, "ssl in its extra"),
        ("http", {"verify": False}, "verify in its extra, .* apart from ssl.ca.location"),
        ("http", {"ssl.ca.location": "/ca"}, "ssl.ca.location has no effect with an address of http, which"),
        (
            "iceberg",
            {"type": "rest", "ssl.ca.location": "/ca"},
            "ssl.ca.location has no effect with an address of http",
        ),
        ("iceberg", {"ssl.ca.location": "/ca"}, "ssl.ca.location in its extra"),
        ("smtp", {"disable_sll": True}, "Did you mean disable_ssl?"),
        ("smtp", {"disable_tls": "false"}, "disable_tls is 'false'. Write it as true or false"),
        ("spark_connect", {"use_sll": True}, "Did you mean use_ssl?"),
        ("spark_connect", {"stream_ports": "40000:40100"}, "Its stream_ports are no ports."),
        ("spark_connect", {"stream_ports": "40100-40000"}, "Its stream_ports are no ports."),
        ("spark_connect", {"stream_ports": "0-40000"}, "Its stream_ports are no ports."),
        ("spark_connect", {"stream_host": "0.0.0.0"}, "Its stream_host is 0.0.0.0."),  # noqa: S104
        ("spark_connect", {"stream_host": "fd00::7"}, "Its stream_host is fd00::7."),
        ("spark_connect", {"stream_ports": "40000-70000"}, "Its stream_ports are no ports."),
        ("spark_connect", {"ssl.ca.location": "/ca"}, "ssl.ca.location has no effect with use_ssl false, which"),
        (
            "spark_connect",
            {"use_ssl": True, "ssl.key.location": "/key"},
            "client certificate needs ssl.certificate.loc",
        ),
        ("spark_connect", {"use_ssl": "yes"}, "use_ssl is 'yes'. Write it as true or false"),
        ("spark", {"deploy_mode": "client"}, "Did you mean deploy-mode?"),
    ],
)
def test_setting_that_would_be_left_out_is_refused_by_name(type_: str, extra: Mapping[str, Any], hint: str) -> None:
    with pytest.raises(ConfigurationError, match=hint.replace("?", r"\?")) as refused:
        read(Connection("shop", type_, host="db", extra=extra))
    assert refused.value.subject == "shop"


@pytest.mark.parametrize(
    ("type_", "extra"),
    [
        ("postgres", {"sslmode": "verify-full", "extra__postgres__sslmode": "", "cursor": "", "iam": None}),
        ("iceberg", {"type": "rest", "s3.region": "eu", "header.X-Team": "data", "sslmode": ""}),
        ("smtp", {"from_email": "a@b", "to_email": ["c@d"], "disable_tls": False, "disable_ssl": "true"}),
        ("spark_connect", {"use_ssl": "true"}),
        ("spark_connect", {"use_ssl": False}),
        ("spark_connect", {"use_ssl": True, "ssl.ca.location": "/ca", "ssl.key.location": ""}),
        ("spark", {"deploy-mode": "client"}),
        ("apprise", {"config": {"path": "slack://a/b/c"}}),
    ],
)
def test_known_settings_and_empty_fields_of_the_form_of_airflow_are_taken(type_: str, extra: Mapping[str, Any]) -> None:
    read(Connection("shop", type_, host="db", extra=extra))


REST = {"type": "rest", "warehouse": "shop"}
READERS = {
    "kafka": (kafka_options, Connection("shop", "kafka", extra={"bootstrap.servers": "b:9092"})),
    "registry": (registry_settings, Connection("shop", "http", host="http://registry")),
    "webhook": (http_request, Connection("shop", "http", host="http://hooks", extra={"X-Team": "data"})),
    "TLS of a webhook": (webhook_tls, Connection("shop", "http", host="http://hooks")),
    "postgres": (postgres_dsn, Connection("shop", "postgres", host="db")),
    "spark": (spark_server, Connection("shop", "spark_connect", host="sc://spark")),
    "lake": (lake_catalog, Connection("shop", "iceberg", host="http://catalog", extra=REST)),
}
NEVER_TAKEN = ("group.id", "ssl.ca.location", "ssl.key.location", "verify", "options", "use_ssl", "spark", "auth")


@pytest.mark.parametrize("empty", [None, ""])
@pytest.mark.parametrize("reader", READERS)
def test_a_setting_that_is_left_empty_is_as_if_it_was_not_there(reader: str, empty: object) -> None:
    read_it, connection = READERS[reader]
    filled = replace(connection, extra={**connection.extra, **dict.fromkeys(NEVER_TAKEN, empty)})
    assert read_it(filled) == read_it(connection)


@pytest.mark.parametrize("reader", READERS)
def test_negative_control_with_a_value_it_is_refused_or_taken(reader: str) -> None:
    read_it, connection = READERS[reader]
    for name in NEVER_TAKEN:
        filled = replace(connection, extra={**connection.extra, name: "0"})
        try:
            if read_it(filled) != read_it(connection):
                return
        except ConfigurationError:
            return
    pytest.fail("no setting has an effect")


def test_every_setting_of_postgresql_is_one_of_libpq_and_arrives_there() -> None:
    known = {each.keyword.decode() for each in Conninfo.get_defaults()}
    assert set(POSTGRES_SETTINGS) <= known
    extra = {name: f"/{name}" for name in POSTGRES_SETTINGS}
    assert extra.items() <= conninfo_to_dict(postgres_dsn(Connection("shop", "postgres", extra=extra))).items()


def lake(**extra: Any) -> LakeCatalog:
    connection = Connection("lake", "iceberg", host="db", login="ana", schema="catalog", extra=extra)
    return LakeCatalog(*lake_catalog(connection))


def jdbc_of(catalog: LakeCatalog) -> dict[str, str]:
    prefix = "spark.sql.catalog.lake.jdbc."
    told = spark_settings(catalog)
    found = {name.removeprefix(prefix): value for name, value in told.items() if name.startswith(prefix)}
    return {name: value for name, value in found.items() if name not in ("user", "schema-version")}


def test_settings_of_postgresql_are_libpqs_for_pyiceberg_and_the_drivers_for_spark() -> None:
    files = {"sslrootcert": "/ca.pem", "sslcert": "/me.crt", "sslkey": "/me.pk8", "sslpassword": "s3cret"}
    catalog = lake(sslmode="verify-full", channel_binding="require", sslnegotiation="direct", **files)
    query = dict(each.split("=") for each in catalog.properties["uri"].partition("?")[2].split("&"))
    assert {name: query[name] for name in ("sslmode", "channel_binding", "sslnegotiation", "sslpassword")} == {
        "sslmode": "verify-full", "channel_binding": "require", "sslnegotiation": "direct", "sslpassword": "s3cret",
    }  # fmt: skip
    assert not {"sslmode", "sslrootcert"} & catalog.properties.keys()
    more = {"sslmode": "verify-full", "channelBinding": "require", "sslNegotiation": "direct"}
    assert jdbc_of(catalog) == {**more, **files}


def test_settings_in_the_address_of_a_catalog_reach_spark_too() -> None:
    catalog = lake(uri="postgresql+psycopg://ana@db/catalog?sslmode=verify-full&sslrootcert=/ca.pem")
    assert jdbc_of(catalog) == {"sslmode": "verify-full", "sslrootcert": "/ca.pem"}


def test_required_encryption_with_an_authority_verifies_it_in_spark_as_in_libpq() -> None:
    assert jdbc_of(lake(sslmode="require", sslrootcert="/ca.pem"))["sslmode"] == "verify-ca"
    assert jdbc_of(lake(sslmode="require"))["sslmode"] == "require"


@pytest.mark.parametrize(
    ("extra", "why", "advice"),
    [
        ({"sslkey": "/me.key"}, "sslkey is /me.key", "openssl pkcs8 -topk8 -nocrypt -outform DER"),
        ({"sslrootcert": "system"}, "sslrootcert system", '{"spark": {"jdbc.sslrootcert": '),
        ({"sslcrl": "/revoked.pem"}, "no setting sslcrl", "Remove sslcrl"),
        ({"require_auth": "scram-sha-256"}, "no setting require_auth", "Remove require_auth"),
    ],
)
def test_what_sparks_driver_cannot_do_is_refused_with_what_to_do(extra: dict[str, str], why: str, advice: str) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(why)) as refused:
        spark_settings(lake(**extra))
    assert advice in refused.value.advice
    assert refused.value.subject == "lake"


def test_files_of_sparks_own_are_taken_instead() -> None:
    spark = {"jdbc.sslkey": "/spark/me.pk8", "jdbc.sslrootcert": "/spark/ca.pem"}
    told = jdbc_of(lake(sslkey="/me.key", sslrootcert="system", spark=spark))
    assert told == {"sslkey": "/spark/me.pk8", "sslrootcert": "/spark/ca.pem"}


@pytest.mark.parametrize(
    ("uri", "what"),
    [
        ("postgresql+psycopg://db/catalog?sslmode=prefer", "sslmode in its extra and in its uri"),
        ("sqlite:////lake.db", "sslmode in its extra, and no PostgreSQL as uri"),
    ],
)
def test_setting_that_its_address_contradicts_is_refused(uri: str, what: str) -> None:
    with pytest.raises(ConfigurationError, match=what):
        lake(uri=uri, sslmode="verify-full")


def test_iceberg_in_java_gets_no_file_that_it_would_not_read_and_a_class_of_ones_own_instead() -> None:
    files = {"ssl.ca.location": "/ca", "ssl.certificate.location": "/me.crt", "ssl.key.location": "/me.key"}
    rest = {"type": "rest", "uri": "https://catalog", **files}
    with pytest.raises(ConfigurationError, match=r"reads no ssl\.ca\.location") as refused:
        spark_settings(lake(**rest))
    assert "REQUESTS_CA_BUNDLE" in refused.value.advice
    told = spark_settings(lake(**rest, spark={"rest.client.tls.configurer-impl": "com.shop.Tls"}))
    assert not [name for name in told if ".ssl." in name]
    assert told["spark.sql.catalog.lake.rest.client.tls.configurer-impl"] == "com.shop.Tls"


@pytest.mark.parametrize(
    "host", ["", "sc://", "sc://spark/x", "sc://spark;use_ssl=false", "sc://ana@spark", "https://spark"]
)
def test_address_that_is_no_name_of_a_spark_server_is_refused(host: str) -> None:
    with pytest.raises(ConfigurationError, match="no address of a Spark Connect server"):
        spark_server(Connection("shop", "spark_connect", host))


def test_token_reaches_spark_whatever_characters_it_has() -> None:
    token = "a/b+c==;d e%2F"  # noqa: S105 -- made up
    url, _ = spark_server(
        Connection("shop", "spark_connect", "sc://spark", 15003, "ana", token, extra={"use_ssl": True})
    )
    channel = DefaultChannelBuilder(url)
    assert (channel.endpoint, channel.token, channel.userId, channel.use_ssl) == ("spark:15003", token, "ana", True)


@pytest.mark.parametrize(
    ("server", "extra", "address"),
    [
        ("sc://localhost", {}, StreamAddress()),
        ("127.0.0.1:15002", {"stream_ports": "40000"}, StreamAddress(ports=(40_000, 40_000))),
        ("sc://spark.internal", {}, None),
        ("sc://spark.internal", {"stream_host": "step.internal"}, StreamAddress("step.internal")),
        (
            "sc://spark.internal",
            {"stream_host": "10.0.0.7", "stream_ports": "40000-40100"},
            StreamAddress("10.0.0.7", (40_000, 40_100)),
        ),
        ("sc://127.0.0.1", {"stream_host": "auto"}, StreamAddress()),
        ("sc://no-such-server.invalid", {"stream_host": "auto"}, None),
    ],
    ids=str,
)
def test_tasks_reach_a_step_on_this_machine_or_where_the_connection_says(
    server: str, extra: Mapping[str, Any], address: StreamAddress | None
) -> None:
    assert stream_address(Connection("spark", "spark_connect", server, extra=extra)) == address
