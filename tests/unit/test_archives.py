"""What the wheel and the sdist hold: all of the package and its licence, and nothing else; one plugin of Airflow."""

import json
import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from batchledger.local.stack.airflow_components import DAG_FILE
from tests.archives import build_archives, copy_sources
from tests.conftest import ROOT

_PACKAGE = ROOT / "include" / "batchledger"
_PLUGINS = """
import json
from airflow.plugins_manager import _get_plugins
plugins, errors = _get_plugins()
print(json.dumps([[each.name for each in plugins if each.name == "batchledger"], errors]))
"""


@pytest.fixture(scope="module")
def archives(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("archives")
    (folder / "sources").mkdir()
    return build_archives(copy_sources(folder / "sources"), folder / "dist")


def list_package() -> set[str]:
    files = [path for path in _PACKAGE.rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    return {str(path.relative_to(_PACKAGE.parent)) for path in files}


def test_wheel_holds_the_package_and_its_licence_and_nothing_else(archives: tuple[Path, Path]) -> None:
    names = set(zipfile.ZipFile(archives[0]).namelist())
    metadata = {name for name in names if ".dist-info/" in name}
    assert names - metadata == list_package()
    assert any(name.endswith("/licenses/LICENSE") for name in metadata)


def test_sdist_holds_the_package_and_no_test_and_no_data_of_services(archives: tuple[Path, Path]) -> None:
    with tarfile.open(archives[1]) as sdist:
        names = {member.name.partition("/")[2] for member in sdist.getmembers() if member.isfile()}
    assert {f"include/{name}" for name in list_package()} <= names
    assert {name.partition("/")[0] for name in names} == {
        *("include", "LICENSE", "PKG-INFO", "README.md", "pyproject.toml", "setup.cfg")
    }


def test_airflow_of_this_environment_has_the_plugin_exactly_once(tmp_path: Path) -> None:
    environment = {
        **os.environ,
        "AIRFLOW_HOME": str(tmp_path),
        "AIRFLOW_CONFIG": str(tmp_path / "airflow.cfg"),
        "AIRFLOW__CORE__PLUGINS_FOLDER": str(ROOT / "plugins"),
    }
    done = subprocess.run(
        [sys.executable, "-c", _PLUGINS], env=environment, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert json.loads(done.stdout.splitlines()[-1]) == [["batchledger"], {}]


def test_dag_file_of_the_local_services_is_the_file_of_the_checkout_and_of_the_guide() -> None:
    assert (ROOT / "dags" / "batchledger_dags.py").read_text() == DAG_FILE
    assert DAG_FILE in (ROOT / "docs" / "guides" / "own-airflow.md").read_text()


def test_pipelines_of_the_checkout_are_those_of_the_package() -> None:
    links = {path.name: path.resolve() for path in (ROOT / "include" / "pipelines").glob("flights*.yaml")}
    assert links == {path.name: path for path in (_PACKAGE / "pipelines").glob("*.yaml")}
