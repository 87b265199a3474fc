"""The package fits beside an Airflow that people have already, with usual providers, and changes none of its packages.

Each list of ``tests/own_airflow`` has what pip would have chosen for that Airflow on the day of its release.
"""

import re
import tomllib
from collections.abc import Iterable
from pathlib import Path

import pytest
from packaging.markers import Marker
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from batchledger.model.errors import ConfigurationError
from batchledger.source.spark import versions
from tests.conftest import ROOT

LISTS = sorted((ROOT / "tests" / "own_airflow").glob("airflow-*.txt"))
INSTALLED = ROOT / "tests" / "own_airflow" / "requirements.txt"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]


def read_list(path: Path) -> dict[str, str]:
    """The versions that a list or a lock has for this Python, by the names of the packages."""
    lines = re.findall(r"(?m)^([a-z0-9.-]+)==(\S+)(?: ; ([^\\\n]+))?", path.read_text())
    return {name: version for name, version, marker in lines if not marker or Marker(marker).evaluate()}


def list_misfits(requirements: Iterable[str], versions_by_name: dict[str, str]) -> list[str]:
    """The requirements that a list has in a version which does not do."""
    asked = map(Requirement, requirements)
    there = ((each, versions_by_name.get(canonicalize_name(each.name))) for each in asked)
    return [f"{each}: {version}" for each, version in there if version and version not in each.specifier]


@pytest.mark.parametrize("path", LISTS, ids=[each.stem for each in LISTS])
def test_base_and_extras_take_what_a_usual_airflow_has(path: Path) -> None:
    found = read_list(path)
    assert {"apache-airflow", "apache-airflow-providers-snowflake", "sqlalchemy", "protobuf", "pandas"} <= found.keys()
    asked = [*PROJECT["dependencies"], *(each for extra in EXTRAS.values() for each in extra)]
    assert list_misfits(asked, found) == []


def test_the_airflows_are_of_two_minor_versions_and_none_has_a_package_of_the_project_in_a_version_of_its_own() -> None:
    assert [each.stem.rpartition(".")[0] for each in LISTS] == ["airflow-3.2", "airflow-3.3"]
    assert [read_list(each)["protobuf"].partition(".")[0] for each in LISTS] == ["6", "6"]
    assert [read_list(each)["sqlalchemy"].rpartition(".")[0] for each in LISTS] == ["2.0", "2.0"]


@pytest.mark.parametrize("pin", ["sqlalchemy==2.1.9", "protobuf>=7,<8", "apache-airflow==3.3.1", "pandas>=3.1.1"])
def test_negative_control_a_pin_of_the_project_fits_beside_none(pin: str) -> None:
    assert all(list_misfits([pin], read_list(each)) for each in LISTS)


def test_what_the_base_adds_leaves_each_package_of_that_airflow_at_its_version() -> None:
    """The environment in which the proof installs the wheel is made from this lock."""
    there = read_list(LISTS[0])
    together = read_list(INSTALLED)
    assert {name: version for name, version in together.items() if there.get(name, version) != version} == {}
    assert {"great-expectations", "pyspark", "aiokafka", "pgpq"} <= together.keys() - there.keys()


def test_one_version_of_pyspark_and_its_client_is_required(monkeypatch: pytest.MonkeyPatch) -> None:
    versions.require_one_version()
    monkeypatch.setattr(versions, "version", {"pyspark": "4.2.1", "pyspark-client": "4.2.0"}.get)
    with pytest.raises(ConfigurationError, match=r"pyspark is 4\.2\.1 here, and pyspark-client is 4\.2\.0") as refused:
        versions.require_one_version()
    assert '"pyspark==4.2.0" "pyspark-client==4.2.0"' in refused.value.advice
