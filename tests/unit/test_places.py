"""Where files lie by default: in a checkout, and for a package that was installed."""

from pathlib import Path

import pytest

from batchledger.config import places
from batchledger.local.stack.home import Home
from tests.conftest import ROOT


def test_checkout_keeps_everything_within_itself_whatever_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    home = Home.of_project({})
    assert (home.root, home.local, home.cache) == (ROOT, ROOT / ".local", (ROOT / ".local" / "cache").resolve())
    assert home.pipelines == ROOT / "include" / "pipelines"


def test_installed_package_writes_to_the_working_directory_and_reads_pipelines_from_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "site-packages" / "batchledger"
    monkeypatch.setattr(places, "PACKAGE", package)
    monkeypatch.chdir(tmp_path)
    home = Home.of_project({"XDG_CACHE_HOME": str(tmp_path / "caches")})
    assert home.local == tmp_path / ".batchledger"
    assert home.root == home.local / "airflow"
    assert home.cache == tmp_path / "caches" / "batchledger"
    assert home.pipelines == package / "pipelines"


def test_folder_named_include_alone_is_no_checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(places, "PACKAGE", tmp_path / "include" / "batchledger")
    assert places.find_checkout() is None
    (tmp_path / "pyproject.toml").touch()
    assert places.find_checkout() == tmp_path


def test_variable_moves_each_folder(tmp_path: Path) -> None:
    names = ("LOCAL", "CACHE", "PIPELINES")
    home = Home.of_project({f"BATCHLEDGER_{name}": str(tmp_path / name) for name in names})
    assert [home.local, home.cache, home.pipelines] == [tmp_path / name for name in names]
