"""Changelog fragments are joined by towncrier, and the version has one place."""

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

from tests.conftest import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
VERSION = PROJECT["project"]["version"]
TYPES = [each["directory"] for each in PROJECT["tool"]["towncrier"]["type"]]
NAME = re.compile(rf"\+[a-z0-9-]+\.(?:{'|'.join(TYPES)})\.md")


def find_misnamed(folder: Path) -> list[str]:
    """Return the files that towncrier would leave out, or join under a number."""
    return [each.name for each in folder.iterdir() if each.name != "README.md" and not NAME.fullmatch(each.name)]


def test_every_fragment_is_one_that_the_tool_joins() -> None:
    assert find_misnamed(ROOT / "changelog.d") == []


@pytest.mark.parametrize("name", ["words.added.md", "+words.new.md", "+words.added.txt", "notes.md"])
def test_fragment_of_another_name_is_noticed(tmp_path: Path, name: str) -> None:
    (tmp_path / name).touch()
    assert find_misnamed(tmp_path) == [name]


def test_tool_joins_fragments_above_the_newest_release_and_removes_them(tmp_path: Path) -> None:
    for name in ("pyproject.toml", "CHANGELOG.md"):
        shutil.copy(ROOT / name, tmp_path)
    shutil.copytree(ROOT / "changelog.d", tmp_path / "changelog.d")
    fragment = tmp_path / "changelog.d" / "+a-change.changed.md"
    fragment.write_text("Batches end sooner.\n")
    command = [sys.executable, "-m", "towncrier", "build", "--yes", "--version", "99.0.0", "--date", "2099-01-01"]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    assert not fragment.exists()
    text = (tmp_path / "CHANGELOG.md").read_text()
    parts = ["## [99.0.0] - 2099-01-01", "### Changed", "- Batches end sooner.\n", f"## [{VERSION}]"]
    assert parts == sorted(parts, key=text.index)


def test_changelog_and_image_name_the_version_of_the_package() -> None:
    newest = re.search(r"^## \[(.+?)\] - \d{4}-\d\d-\d\d$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert newest is not None
    assert newest[1] == VERSION
    services = yaml.safe_load((ROOT / "docker-compose.yaml").read_text())["services"].values()
    assert {each["image"] for each in services if "build" in each} == {f"batchledger:{VERSION}"}
