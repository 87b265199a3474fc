"""Changelog fragments are ones that towncrier joins, and the version has one place."""

import re
import tomllib
from pathlib import Path

import pytest
import yaml

from tests.conftest import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
VERSION = PROJECT["project"]["version"]
TYPES = [each["directory"] for each in PROJECT["tool"]["towncrier"]["type"]]
OTHERS = ("README.md", "template.md")
NAME = re.compile(rf"\+[a-z0-9-]+\.(?:{'|'.join(TYPES)})\.md")


def find_misnamed(folder: Path) -> list[str]:
    """Return the files that towncrier would leave out, or join under a number."""
    return [each.name for each in folder.iterdir() if each.name not in OTHERS and not NAME.fullmatch(each.name)]


def test_every_fragment_is_one_that_the_tool_joins() -> None:
    assert find_misnamed(ROOT / "changelog.d") == []


@pytest.mark.parametrize("name", ["words.added.md", "+words.new.md", "+words.added.txt", "notes.md"])
def test_fragment_of_another_name_is_noticed(tmp_path: Path, name: str) -> None:
    (tmp_path / name).touch()
    assert find_misnamed(tmp_path) == [name]


def test_changelog_image_and_guide_name_the_version_of_the_package() -> None:
    newest = re.search(r"^## \[(.+?)\] - \d{4}-\d\d-\d\d$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert newest is not None
    assert newest[1] == VERSION
    services = yaml.safe_load((ROOT / "docker-compose.yaml").read_text())["services"].values()
    assert {each["image"] for each in services if "build" in each} == {f"batchledger:{VERSION}"}
    guide = (ROOT / "docs" / "guides" / "own-airflow.md").read_text()
    assert set(re.findall(r"/airflow_provider_batchledger-(.+?)-py3", guide)) == {VERSION}
