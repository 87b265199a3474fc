"""The page of the stable surface names all that there is, each name once, with the version that brought it."""

import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
import typer

from batchledger import cli
from batchledger.interfaces.metrics.families import Look, build_families, build_partition_families
from batchledger.ledger.schema import RELEASES
from tests.conftest import ROOT
from tests.unit.test_reference import EXTENSION, named_keys
from tests.unit.test_reference import TEXT as KEYS

MIGRATIONS = ROOT / "include" / "batchledger" / "ledger" / "migrations"
PAGE = (ROOT / "docs" / "reference" / "stable-surface.md").read_text(encoding="utf-8")


def listed(page: str, section: str) -> list[str]:
    """The names of a section, without options that came later than their command."""
    (text,) = re.findall(rf"(?ms)^## {section}$(.+?)(?=^## |\Z)", page)
    rows = re.findall(r"(?m)^\| (\S+) \| (.+) \|$", text)
    assert {since for since, _ in rows} <= {"since", *RELEASES.values()}
    return sorted(name for _, names in rows for name in re.findall(r"`(.+?)`", names))


def commands() -> Iterator[str]:
    """Every command, and those below it."""

    def walk(name: str, command: Any) -> Iterator[str]:
        yield name
        for below, child in getattr(command, "commands", {}).items():
            yield from walk(f"{name} {below}", child)

    for name in typer.main.get_command(cli.app).commands:  # type: ignore[attr-defined]
        yield from walk(name, cli.load_command(name))


def keys() -> Iterator[str]:
    """Every key of the pipeline file; kinds of sinks share some."""
    yield from {"sink", *(row[0] for name in named_keys(KEYS) for row in EXTENSION["list_rows"](name))}


def tables() -> Iterator[str]:
    """Every table of the ledger."""
    yield "migration"
    for file in MIGRATIONS.glob("*.sql"):
        yield from re.findall(r"(?m)^create table batchledger\.(\w+)", file.read_text())


def metrics() -> Iterator[str]:
    """Every family of metrics."""
    look, now = Look(), datetime.now(UTC)
    yield from (each.name for each in (*build_families(look, now), *build_partition_families(look, now)))


@pytest.mark.parametrize(
    ("section", "find"),
    [
        ("Commands", commands),
        ("Keys of the pipeline file", keys),
        ("Tables of the ledger", tables),
        ("Metrics", metrics),
    ],
)
def test_each_name_is_on_the_page_once_and_none_else(section: str, find: Callable[[], Iterator[str]]) -> None:
    assert listed(PAGE, section) == sorted(find())
    name = min(find())
    assert listed(PAGE.replace(f"`{name}`", ""), section) != sorted(find())


def test_names_for_python_are_on_their_own_page() -> None:
    import batchledger.airflow

    text = (ROOT / "docs" / "reference" / "python.md").read_text(encoding="utf-8")
    rows = re.findall(r"(?m)^\| `(\w+)[`(].* \| (0\.\d+\.\d+) \|", text)
    assert sorted(name for name, _ in rows) == sorted(batchledger.airflow.__all__)
