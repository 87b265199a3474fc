"""An Airflow that knows nothing of the project, with its own environment, home and database; and a person's hands."""

import json
import os
import signal
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
from cryptography.fernet import Fernet

from batchledger.local.airflow_api import AirflowAccount
from tests.archives import Person
from tests.conftest import choose_ports

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

HOST = "127.0.0.1"
USER, PASSWORD = "admin", "pass-of-own-airflow"
# A machine that is busy with other work takes several times as long as an idle one.
PATIENT_MILLISECONDS = 60_000
COMPONENTS = ("api-server", "scheduler", "dag-processor")


@dataclass(frozen=True)
class OwnAirflow(Person):
    """A running one, and a person in its home, whose shell has the variables of its processes."""

    url: str

    @property
    def account(self) -> AirflowAccount:
        return AirflowAccount(self.url, USER, self.folder / "passwords.json")

    def answers(self) -> bool:
        """Whether its API server does."""
        try:
            return httpx.get(f"{self.url}/api/v2/version", trust_env=False).is_success
        except httpx.TransportError:
            return False


@contextmanager
def run_own_airflow(
    programs: Path, home: Path, database: str, dag_file: str, environment: dict[str, str]
) -> Iterator[OwnAirflow]:
    """Run one with that database and DAG file, and its three components, until the block ends.

    It may answer only later.
    """
    home.mkdir()
    (home / "passwords.json").write_text(json.dumps({USER: PASSWORD}))
    for folder in ("dags", "pipelines"):
        (home / folder).mkdir()
    (home / "dags" / "batchledger_dags.py").write_text(dag_file)
    url = f"http://{HOST}:{(port := choose_ports().airflow)}"
    settings = {
        "API__BASE_URL": url,
        "API__HOST": HOST,
        "API__PORT": str(port),
        "API__SECRET_KEY": Fernet.generate_key().decode(),
        "API__WORKERS": "1",
        "API_AUTH__JWT_SECRET": Fernet.generate_key().decode() * 2,
        "CORE__EXECUTION_API_SERVER_URL": f"{url}/execution/",
        "CORE__FERNET_KEY": Fernet.generate_key().decode(),
        "CORE__LOAD_EXAMPLES": "False",
        "CORE__PARALLELISM": "2",
        "CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE": str(home / "passwords.json"),
        "CORE__SIMPLE_AUTH_MANAGER_USERS": f"{USER}:admin",
        "CORE__TEST_CONNECTION": "Enabled",
        "DAG_PROCESSOR__REFRESH_INTERVAL": "5",
        "DATABASE__SQL_ALCHEMY_CONN": database,
        "SCHEDULER__SCHEDULER_IDLE_SLEEP_TIME": "0.2",
        "USAGE_DATA_COLLECTION__ENABLED": "False",
    }
    own = OwnAirflow(
        programs,
        home,
        environment
        | {f"AIRFLOW__{name}": value for name, value in settings.items()}
        | {"AIRFLOW_HOME": str(home), "BATCHLEDGER_PIPELINES": str(home / "pipelines")}
        | {"BATCHLEDGER_DOCS": str(home / "docs"), "no_proxy": HOST, "NO_PROXY": HOST},
        url,
    )
    own.succeed("airflow", "db", "migrate")
    with ExitStack() as stack:
        for component in COMPONENTS:
            stack.enter_context(_run_component(own, component))
        yield own


@contextmanager
def _run_component(own: OwnAirflow, component: str) -> Iterator[None]:
    with (own.folder / f"{component}.log").open("w") as log:
        process = subprocess.Popen(
            [str(own.programs / "airflow"), component],
            cwd=own.folder,
            env=own.environment,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        yield
    finally:
        # Its children do not all end with it.
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def log_in(page: "Page", own: OwnAirflow) -> None:
    """Open Airflow's page of connections as its administrator."""
    page.set_default_timeout(PATIENT_MILLISECONDS)
    page.goto(f"{own.url}/connections")
    page.fill("input[name=username]", USER)
    page.fill("input[name=password]", PASSWORD)
    page.keyboard.press("Enter")


def add_connection(
    page: "Page", name: str, type_: str, fields: Mapping[str, str], extra: Mapping[str, str] | None = None
) -> set[str]:
    """Fill in the form of that page for a new connection, as ``fill_form`` does, and see it in the list."""
    hidden = fill_form(page, name, type_, fields, extra or {})
    page.get_by_role("button", name="Save").click()
    page.get_by_role("dialog").wait_for(state="hidden")
    page.get_by_text(name, exact=True).first.wait_for()
    return hidden


def fill_form(page: "Page", name: str, type_: str, fields: Mapping[str, str], extra: Mapping[str, str]) -> set[str]:
    """Fill in the form of a new connection; a type has the name of the form.

    ``extra`` has the fields that its provider adds, by their names. Returns the names of fields that hide their value.
    """
    page.get_by_role("button", name="Add Connection").first.click()
    page.locator("input[name=connection_id]").fill(name)
    page.get_by_role("combobox").last.fill(type_)
    page.keyboard.press("Enter")
    for field, value in fields.items():
        page.locator(f"input[name={field}]").fill(value)
    if extra:
        page.get_by_role("button", name="Extra Fields", exact=True).click()
    for field, value in extra.items():
        _fill(page, page.locator(f'input[name="element_{field}"]'), value)
    hidden = page.locator("input[type=password]").evaluate_all("all => all.map(each => each.name)")
    return {each.removeprefix("element_") for each in hidden}


def _fill(page: "Page", field: "Locator", value: str) -> None:
    """Type the value. A field with choices is two inputs: one to type into, and a hidden one that holds the choice."""
    if field.get_attribute("type") != "hidden":
        field.fill(value)
        return
    field.locator("xpath=..").get_by_role("combobox").fill(value)
    page.keyboard.press("Enter")
