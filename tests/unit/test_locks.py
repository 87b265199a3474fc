"""What is installed is what the locks name, by its digest."""

import re
import shlex
import subprocess
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.conftest import ROOT

PRODUCT, TESTS, TOOLS = ROOT / "requirements.txt", ROOT / "tests" / "requirements.txt", ROOT / "tests" / "tools.txt"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
RANGES = [
    Requirement(each)
    for extra in (PROJECT["dependencies"], *PROJECT["optional-dependencies"].values())
    for each in extra
]
BOUNDED = {"sqlalchemy", "apache-airflow-providers-smtp"}
"""The next version of these may change what is used here."""
_PACKAGE = re.compile(r"(?m)^([a-z0-9.-]+)(?:\[[^]]+\])?==(\S+)(.*)$")
_DIGEST = re.compile(r"--hash=sha256:([0-9a-f]{64})(?= |$)")


def read_lock(lock: Path) -> dict[tuple[str, str], set[str]]:
    """The digests of each package, by its name and version."""
    text = lock.read_text().replace("\\\n", " ")
    return {(name, version): set(_DIGEST.findall(rest)) for name, version, rest in _PACKAGE.findall(text)}


@pytest.mark.parametrize(
    ("lock", "at_least"), [(PRODUCT, 100), (TESTS, 100), (TOOLS, 50)], ids=["product", "tests", "tools"]
)
def test_each_package_of_a_lock_has_digests(lock: Path, at_least: int) -> None:
    packages = read_lock(lock)
    assert len(packages) > at_least
    assert [each for each, digests in packages.items() if not digests] == []


def test_lock_of_the_product_has_no_package_for_the_sake_of_tests() -> None:
    assert "(pyproject.toml:dev)" in TESTS.read_text()
    assert "(pyproject.toml:dev)" not in PRODUCT.read_text()
    assert {"pytest", "ruff", "sphinx"}.isdisjoint(name for name, _ in read_lock(PRODUCT))


def test_lock_of_the_tests_names_the_versions_of_the_product() -> None:
    product = read_lock(PRODUCT)
    names = {name for name, _ in product}
    assert [each for each in read_lock(TESTS) if each[0] in names and each not in product] == []


def test_programs_that_no_code_imports_cost_no_process_of_the_environment_anything() -> None:
    """The list of packages brought ``rfc3987-syntax``: whatever imports Airflow compiled a grammar, 1.5 s each time."""
    tools = {name for name, _ in read_lock(TOOLS)}
    assert {"cyclonedx-bom", "pip-audit", "towncrier", "rfc3987-syntax"} <= tools
    environment = {name for lock in (PRODUCT, TESTS) for name, _ in read_lock(lock)}
    assert {"cyclonedx-bom", "pip-audit", "towncrier", "rfc3987-syntax"}.isdisjoint(environment)


def test_lock_fits_the_ranges_of_the_project() -> None:
    locked = dict(read_lock(TESTS).keys()) | dict(read_lock(PRODUCT).keys())
    assert [str(each) for each in RANGES if locked[canonicalize_name(each.name)] not in each.specifier] == []


def test_project_leaves_the_version_of_what_airflow_brings_to_airflow() -> None:
    """A pin or an upper bound would fit no newer Airflow, or change a package of it."""
    needed = {*(metadata.requires("apache-airflow-core") or ()), *(metadata.requires("apache-airflow-task-sdk") or ())}
    brought = {canonicalize_name(Requirement(each).name) for each in needed}
    shared = {
        canonicalize_name(each.name): each.specifier for each in RANGES if canonicalize_name(each.name) in brought
    }
    assert {"pydantic", "sqlalchemy"} <= shared.keys()
    assert [name for name, versions in shared.items() if any(each.operator == "==" for each in versions)] == []
    bounded = {name for name, versions in shared.items() if any(each.operator.startswith("<") for each in versions)}
    assert bounded <= BOUNDED


def test_setup_installs_both_locks_and_nothing_without_a_digest() -> None:
    command = ["make", "--dry-run", "--always-make", ".venv/.stamps/packages"]
    shown = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=60).stdout
    first, second = re.findall(r"(?m)^.*pip install .*$", shown)
    assert " --require-hashes --requirement .venv/.stamps/setuptools.txt " in f"{first} "
    locks = "--requirement requirements.txt --requirement tests/requirements.txt"
    assert f" --require-hashes --no-build-isolation {locks};" in second


def test_what_builds_packages_from_their_sources_has_a_digest_in_setup_and_image(tmp_path: Path) -> None:
    """Without isolation pip builds with what is installed. The same command cuts it out of the lock in both places."""
    program = r"sed -n '/^setuptools==/,/# via/p' requirements.txt"
    assert all(program in (ROOT / each).read_text() for each in ("Makefile", "Dockerfile"))
    cut = tmp_path / "setuptools.txt"
    cut.write_text(subprocess.run(shlex.split(program), cwd=ROOT, capture_output=True, text=True, check=True).stdout)
    ((name, _), digests), *others = read_lock(cut).items()
    assert (name, others) == ("setuptools", [])
    assert digests
