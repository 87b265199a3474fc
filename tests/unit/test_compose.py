"""docker-compose.yaml is valid, holds no secret, and agrees with the services that `batchledger up` starts.

No Docker engine is needed: variables are put in here as Compose would.
"""

import configparser
import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import yaml
from airflow.cli import cli_parser

from batchledger import cli
from batchledger.config.pipeline_file import DEFAULT_PIPELINES_FOLDER, find_pipeline_files, read_pipeline_file
from batchledger.local.stack import database_roles, defaults, log_keeper
from batchledger.local.stack.airflow_components import ADMIN, REVIEWER, VIEWER, airflow_configuration
from batchledger.local.stack.connections import list_connections
from batchledger.local.stack.home import Credentials, Home, Ports, port_variable
from batchledger.local.stack.kafka_broker import client_options, java_options, server_properties
from batchledger.local.stack.local_stack import AIRFLOW_SERVICES
from batchledger.local.stack.machine import OLDEST_JAVA
from batchledger.local.stack.postgres_server import WITHOUT_VALUES
from batchledger.local.stack.spark_connect import spark_defaults

ROOT = Path(__file__).resolve().parents[2]
COMPOSE_FILE = ROOT / "docker-compose.yaml"
TEXT = COMPOSE_FILE.read_text()
SERVICES: dict[str, Any] = yaml.safe_load(TEXT)["services"]
ONE_SHOT = {"airflow-init"}
IN_IMAGE = Path("/opt/batchledger")

VARIABLE = re.compile(r"\$\{(?P<name>\w+):(?P<kind>[?-])(?P<text>[^}]*)\}")
SECRET_NAME = re.compile(r"password$|token$|secret$|secret_key$|fernet_key$", re.IGNORECASE)
HOME = Home(
    root=IN_IMAGE, local=IN_IMAGE / ".local", cache=IN_IMAGE / ".local/cache", pipelines=IN_IMAGE / "include/pipelines"
)
PORTS = Ports(**{name: defaults.PORT_BY_SERVICE[name] for name in Ports.__dataclass_fields__})


KAFKA_LOGIN = Credentials(kafka_password="KAFKA_PASSWORD")  # noqa: S106 - as ``expand`` has it


def expand(text: str) -> str:
    """Put defaults in, and for each secret its own name."""
    return VARIABLE.sub(lambda match: match["text"] if match["kind"] == "-" else match["name"], text)


def environment(service: str) -> dict[str, str]:
    return {name: expand(value) for name, value in SERVICES[service]["environment"].items()}


def parse_properties(text: str) -> dict[str, str]:
    """Also of lines that a backslash continues."""
    return dict(line.split("=", 1) for line in re.sub(r"\\\n\s*", "", text).splitlines())


def every_setting() -> Iterator[tuple[str, str]]:
    """Every variable of every service, and every field of the connections among them."""
    for service in SERVICES.values():
        for name, value in service.get("environment", {}).items():
            if name.startswith("AIRFLOW_CONN_"):
                yield from (
                    (field, content) for field, content in json.loads(value).items() if isinstance(content, str)
                )
            else:
                yield name, value


def test_it_follows_the_compose_specification() -> None:
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec", str(COMPOSE_FILE)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_secret_comes_from_a_variable_that_has_to_be_set() -> None:
    secrets = [(name, value) for name, value in every_setting() if SECRET_NAME.search(name)]
    assert len(secrets) > 10
    for name, value in secrets:
        assert re.fullmatch(r"\$\{\w+:\?see \.env\.example\}", value), name
    assert not re.search(r"//[^/@\s]+:[^/@\s]+@", TEXT), "a URL holds a password"


def test_every_variable_either_has_to_be_set_or_has_a_default() -> None:
    assert len(re.findall(r"\$", TEXT)) == len(VARIABLE.findall(TEXT))


def test_the_example_names_every_variable_and_no_value() -> None:
    lines = (ROOT / ".env.example").read_text().splitlines()
    required = {match["name"] for match in VARIABLE.finditer(TEXT) if match["kind"] == "?"}
    optional = {f"# {match['name']}={match['text']}" for match in VARIABLE.finditer(TEXT) if match["kind"] == "-"}
    assert {line for line in lines if line and not line.startswith("#")} == {f"{name}=" for name in required}
    assert {line for line in lines if line.startswith("# BATCHLEDGER_")} == optional


def test_ports_are_those_of_the_local_services_and_on_this_machine_only() -> None:
    published = [port for service in SERVICES.values() for port in service.get("ports", ())]
    hosts = {tuple(expand(port).split(":")[:2]) for port in published}
    names = ("kafka", "postgres", "spark", "airflow")
    assert hosts == {("127.0.0.1", str(defaults.PORT_BY_SERVICE[name])) for name in names}
    assert {VARIABLE.search(port)["name"] for port in published} == {port_variable(name) for name in names}


def test_versions_are_those_of_the_local_services() -> None:
    """A digest behind the tag is welcome."""
    kafka, postgres = (SERVICES[name]["image"].partition("@")[0] for name in ("kafka", "postgres"))
    assert kafka == f"apache/kafka:{defaults.KAFKA_VERSION}"
    assert f"{postgres}.0" == f"postgres:{defaults.POSTGRES_VERSION}"
    locked = dict(re.findall(r"^([a-z0-9-]+)==(\S+)", (ROOT / "requirements.txt").read_text(), re.MULTILINE))
    assert locked["pyspark"] == locked["pyspark-client"] == defaults.SPARK_VERSION
    assert locked["apache-airflow"] == defaults.AIRFLOW_VERSION
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    images = {service["image"] for service in SERVICES.values() if "build" in service}
    assert images == {f"batchledger:{project['version']}"}


def test_connections_have_the_same_ids_and_fields_as_the_local_ones() -> None:
    """But for the schema registry, which Compose lacks. And its containers share no file with a password.

    The owner of the ledger logs in from the container alone that migrates it.
    """
    expected = list_connections(Home.of_project(), PORTS, Credentials())
    del expected[defaults.REGISTRY_CONNECTION]
    for name in (defaults.WAREHOUSE_CONNECTION, defaults.LEDGER_OWNER_CONNECTION):
        expected[name]["password"] = expected[name].pop("extra")
    owner = database_roles.COMPOSE_VARIABLE_BY_ROLE[defaults.LEDGER_USER]
    assert {name for name, service in SERVICES.items() if owner in str(service)} == {"airflow-init"}
    assert f"grant flights --all --role {defaults.DATABASE_USER} --apply" in SERVICES["airflow-init"]["command"][-1]
    of_everyone = {name: each for name, each in expected.items() if name != defaults.LEDGER_OWNER_CONNECTION}
    for service, wanted in (("airflow-scheduler", of_everyone), ("airflow-init", expected)):
        found = {
            name.removeprefix("AIRFLOW_CONN_").lower(): json.loads(value)
            for name, value in environment(service).items()
            if name.startswith("AIRFLOW_CONN_")
        }
        assert {name: set(content) for name, content in found.items()} == {
            name: set(content) for name, content in wanted.items()
        }
        for name, content in found.items():
            same = {field for field in content if field in ("conn_type", "login", "schema")}
            assert {field: content[field] for field in same} == {field: expected[name][field] for field in same}


def test_connections_lead_to_the_services_of_this_file() -> None:
    variables = environment("airflow-scheduler")
    kafka = json.loads(variables["AIRFLOW_CONN_KAFKA_DEFAULT"])["extra"]
    assert f"CLIENT://{kafka['bootstrap.servers']}" in environment("kafka")["KAFKA_ADVERTISED_LISTENERS"].split(",")
    assert without(kafka, {"bootstrap.servers"}) == without(client_options(PORTS, KAFKA_LOGIN), {"bootstrap.servers"})
    warehouse = json.loads(variables["AIRFLOW_CONN_WAREHOUSE"])
    assert warehouse["host"] in SERVICES
    assert (warehouse["login"], warehouse["password"], warehouse["schema"]) == (
        defaults.DATABASE_USER,
        database_roles.COMPOSE_VARIABLE_BY_ROLE[defaults.DATABASE_USER],
        defaults.WAREHOUSE_DATABASE,
    )
    spark = json.loads(variables["AIRFLOW_CONN_SPARK_DEFAULT"])
    assert (spark["host"], SERVICES["airflow-scheduler"]["network_mode"]) == ("sc://localhost", "service:spark")
    assert spark["password"] == environment("spark")["SPARK_CONNECT_AUTHENTICATE_TOKEN"]


def test_databases_have_the_roles_and_rules_of_the_local_ones() -> None:
    """Only the container that makes the roles knows the password of the superuser, beside the server."""
    variable = database_roles.COMPOSE_VARIABLE_BY_ROLE
    postgres, init = environment("postgres"), environment("airflow-init")
    assert postgres["POSTGRES_USER"] == defaults.DATABASE_SUPERUSER
    assert postgres["POSTGRES_PASSWORD"] == variable[defaults.DATABASE_SUPERUSER]
    assert {name: init[name] for name in variable.values()} == {name: name for name in variable.values()}
    knowing = {name for name, service in SERVICES.items() if variable[defaults.DATABASE_SUPERUSER] in str(service)}
    assert knowing == {"postgres", "airflow-init"}
    script = SERVICES["airflow-init"]["command"][-1]
    assert 'import create_compose_databases; create_compose_databases("postgres", 5432)' in script
    assert script.index("create_compose_databases") < script.index("airflow db migrate")
    for name in ("airflow-init", "airflow-scheduler"):
        assert environment(name)["PGPASSWORD"] == variable[defaults.AIRFLOW_DATABASE_USER]
        for key, dialect in (("SQL_ALCHEMY_CONN", "psycopg2"), ("SQL_ALCHEMY_CONN_ASYNC", "asyncpg")):
            expected = f"{defaults.AIRFLOW_DATABASE_USER}@postgres:5432/{defaults.AIRFLOW_DATABASE}"
            assert environment(name)[f"AIRFLOW__DATABASE__{key}"] == f"postgresql+{dialect}://{expected}"
    (mounted,) = SERVICES["postgres"]["configs"]
    assert f"--hba_file={mounted['target']}" in SERVICES["postgres"]["command"]
    logged = dict(each.removeprefix("--").split("=") for each in SERVICES["postgres"]["command"][1:])
    assert logged.items() >= WITHOUT_VALUES.items()
    rules = yaml.safe_load(TEXT)["configs"][mounted["source"]]["content"]
    assert rules == "local all all scram-sha-256\n" + database_roles.host_rules("all")


@pytest.mark.parametrize("file", find_pipeline_files(DEFAULT_PIPELINES_FOLDER), ids=lambda file: file.stem)
def test_every_connection_of_a_pipeline_is_defined(file: Path) -> None:
    pipeline = read_pipeline_file(file)
    target = pipeline.sink.catalog if pipeline.sink.type == "iceberg" else pipeline.sink.connection
    needed = {pipeline.source.connection, target, pipeline.warehouse, pipeline.spark}
    assert {f"AIRFLOW_CONN_{name.upper()}" for name in needed} <= set(environment("airflow-scheduler"))


def test_airflow_is_set_up_as_the_local_one() -> None:
    local = configparser.ConfigParser(interpolation=None)
    local.read_string(airflow_configuration(HOME, PORTS, Credentials()))
    differ = {
        *("core.fernet_key", "core.execution_api_server_url", "core.simple_auth_manager_passwords_file"),
        *("database.sql_alchemy_conn", "database.sql_alchemy_conn_async", "logging.base_log_folder"),
        *("api.host", "api.secret_key", "api_auth.jwt_secret", "secrets.backend", "secrets.backend_kwargs"),
        "dag_processor.dag_bundle_config_list",
    }
    expected = {f"{section}.{key}": value for section in local.sections() for key, value in local[section].items()}
    for service in (*(name for name in SERVICES if name.startswith("airflow-")),):
        found = {
            ".".join(name.lower().split("__")[1:]): value
            for name, value in environment(service).items()
            if name.startswith("AIRFLOW__")
        }
        assert without(found, differ) == without(expected, differ), service
        assert found["core.execution_api_server_url"] == f"http://airflow-api-server:{found['api.port']}/execution/"
    for user in (ADMIN, REVIEWER, VIEWER):
        assert f'"{user}"' in SERVICES["airflow-init"]["command"][-1]


def test_kafka_is_set_up_as_the_local_one() -> None:
    local = parse_properties(server_properties(HOME, PORTS, KAFKA_LOGIN))
    found = {
        name.removeprefix("KAFKA_").replace("_", ".").lower(): value for name, value in environment("kafka").items()
    }
    protocols = "listener.security.protocol.map"
    differ = {"controller.quorum.voters", "listeners", "advertised.listeners", "log.dirs", protocols}
    host = "listener.name.host.plain.sasl.jaas.config"
    assert without(found, {*differ, host}) == without(local, differ)
    # The port of the machine asks for the same login as the one for the other containers.
    assert found[host] == local["listener.name.client.plain.sasl.jaas.config"]
    assert found[protocols] == f"{local[protocols]},HOST:SASL_PLAINTEXT"
    assert f"HOST://127.0.0.1:{PORTS.kafka}" in found["advertised.listeners"].split(",")


def test_kafkas_own_tools_get_the_login_in_a_file() -> None:
    """The check of health is one of them."""
    (mounted,) = SERVICES["kafka"]["configs"]
    assert f"--command-config={mounted['target']}" in SERVICES["kafka"]["healthcheck"]["test"]
    text = expand(yaml.safe_load(TEXT)["configs"][mounted["source"]]["content"])
    expected = java_options(client_options(PORTS, KAFKA_LOGIN))
    assert parse_properties(text) == without(expected, {"bootstrap.servers"})


def test_spark_is_set_up_as_the_local_one() -> None:
    jars = HOME.cache / "jars" / "spark"
    local = dict(line.split(" ", 1) for line in spark_defaults(HOME, PORTS, [jars / "*"]).splitlines())
    command = SERVICES["spark"]["command"]
    found = dict(each.removeprefix("--conf=").split("=", 1) for each in command if each.startswith("--conf="))
    addresses = {"spark.driver.bindAddress", "spark.driver.host", "spark.connect.grpc.binding.address"}
    differ = {"spark.master", "spark.local.dir", "spark.sql.warehouse.dir"}
    assert without(found, differ) == without(local, differ | addresses)
    assert set(found) == set(local) - addresses


def test_every_service_tells_whether_it_is_healthy() -> None:
    assert {name for name, service in SERVICES.items() if "healthcheck" not in service} == ONE_SHOT


def test_every_service_waits_until_what_it_needs_is_ready() -> None:
    for service in SERVICES.values():
        for needed, how in service.get("depends_on", {}).items():
            expected = "service_completed_successfully" if needed in ONE_SHOT else "service_healthy"
            assert how == {"condition": expected}
    needs = {name: set(service.get("depends_on", ())) for name, service in SERVICES.items()}
    assert needs["airflow-init"] == {"postgres"}
    assert needs["airflow-scheduler"] == {"airflow-init", "airflow-api-server", "kafka", "spark"}


def test_the_same_components_of_airflow_run_and_their_commands_exist() -> None:
    subcommands = {command.name for command in cli_parser.airflow_commands}
    started = {service["command"][1] for service in SERVICES.values() if service.get("command", [""])[0] == "airflow"}
    assert started == set(AIRFLOW_SERVICES) <= subcommands
    parser = cli_parser.get_parser()
    for name in AIRFLOW_SERVICES:
        service = SERVICES[f"airflow-{name}"]
        parser.parse_args(service["command"][1:])
        if service["healthcheck"]["test"][1] == "airflow":
            parser.parse_args(service["healthcheck"]["test"][2:])


def test_the_initial_steps_are_commands_that_exist() -> None:
    script = SERVICES["airflow-init"]["command"][-1].splitlines()
    assert script[-3] == "airflow db migrate"
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for line in script[-2:]:
        program, name, *arguments = line.split()
        assert program in project["scripts"]
        command = cli.load_command(name)
        parsed = command.make_context(name, arguments).params
        assert (DEFAULT_PIPELINES_FOLDER / f"{parsed['pipeline']}.yaml").exists()
        assert parsed["login"] == defaults.LEDGER_OWNER_CONNECTION


def test_the_image_installs_the_lock_with_its_hashes_on_a_supported_python_and_java() -> None:
    dockerfile = (ROOT / "Dockerfile").read_text()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert "--require-hashes --requirement requirements.txt" in dockerfile
    assert f"openjdk-{OLDEST_JAVA}-jre-headless" in dockerfile
    assert re.search(r"^FROM python:(\S+?)-slim", dockerfile, re.MULTILINE)[1] == project["requires-python"][2:6]
    locked = (ROOT / "requirements.txt").read_text().replace("\\\n", " ")
    packages = [line for line in locked.splitlines() if "==" in line and not line.startswith(("#", " "))]
    assert packages
    assert all("--hash=sha256:" in line for line in packages)


def test_every_module_that_the_image_runs_exists() -> None:
    named = re.findall(r"from (batchledger[\w.]*) import (\w+)", (ROOT / "Dockerfile").read_text() + TEXT)
    assert named
    for module, name in named:
        assert hasattr(import_module(module), name)


def test_everything_that_the_image_copies_exists_and_nothing_else_reaches_it() -> None:
    copied = re.findall(r"^COPY (.+) \S+$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    sources = {source for line in copied for source in line.split()}
    admitted = [line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")]
    assert sources == set(admitted)
    assert {source for source in sources if not (ROOT / source).exists()} == set()


def without(settings: Mapping[str, str], names: set[str]) -> dict[str, str]:
    return {name: value for name, value in settings.items() if name not in names}


def test_log_of_each_container_is_bounded_as_on_a_developers_machine() -> None:
    bounds = {each["logging"]["driver"]: each["logging"]["options"] for each in SERVICES.values()}
    assert bounds == {"local": {"max-size": f"{log_keeper.MOST_BYTES_OF_A_LOG >> 20}m", "max-file": "2"}}
