"""What `make house` measures is what is there, each measure has a bound, and what is beyond it fails."""

from pathlib import Path

import pytest

from tests.house import (
    ROOT,
    Bound,
    Measure,
    find_modules_that_name_a_kind,
    list_beyond,
    main,
    measure_files,
    read_bounds,
    show,
)

BY_COMMANDS = {"packages that `status` imports", "seconds of CPU of `--help`", "seconds of CPU of `status`"}
LINES, MODULE = "lines of the product, without the workshop", "lines of the longest module"
PORT = """class Read(Protocol):
    def read(self): ...
class Both(Read, Protocol):
    def write(self): ...
class NoRole:
    def one(self): ...
"""


def put(root: Path, name: str, text: str) -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A house with two rooms of interest, a workshop and a port."""
    package = "include/batchledger"
    put(tmp_path, "pyproject.toml", '[project]\ndependencies = ["a", "b"]\n')
    put(tmp_path, "dags/flights.py", "x = 1\n")
    put(tmp_path, "tests/unit/test_a.py", "\n" * 7)
    put(tmp_path, f"{package}/cli.py", "def run():\n    return 1\n")
    put(tmp_path, f"{package}/local/stack.py", "def up():\n" + "    x = 1\n" * 19)
    put(tmp_path, f"{package}/ports/roles.py", PORT)
    put(tmp_path, f"{package}/interfaces/page/app.py", "\n" * 10)
    put(tmp_path, f"{package}/sinks/table/kind.py", "import batchledger.sinks.table\n")
    put(tmp_path, f"{package}/sinks/kinds.py", "from batchledger.sinks import table\n")
    return tmp_path


def test_each_part_of_the_house_is_measured_and_says_where(checkout: Path) -> None:
    assert {what: (value, where) for what, value, where in measure_files(checkout)} == {
        LINES: (21, ""),
        "percent of the package in the largest room": (50.0, "interfaces"),
        "percent of the package in the largest room of interfaces": (50.0, "interfaces/page"),
        "percent of the package in the largest room of sinks": (5.0, "sinks/table"),
        "lines of tests": (7, ""),
        MODULE: (20, "local/stack.py"),
        "lines of the longest function": (20, "local/stack.py: up"),
        "direct dependencies of the base install": (2, ""),
        "methods of the largest port": (2, "Both"),
        "methods of all ports": (3, ""),
        "modules that name a kind of sink outside of its folder": (1, "sinks/kinds.py"),
    }


def test_each_measure_has_a_bound_and_each_bound_a_measure(checkout: Path) -> None:
    assert {each.what for each in measure_files(checkout)} | BY_COMMANDS == read_bounds(ROOT).keys()


def test_kind_is_named_by_an_import_or_as_the_type_of_an_iceberg_table() -> None:
    texts = {
        "sinks/iceberg/kind.py": 'TYPE = "iceberg"',
        "sinks/topic/kind.py": "from batchledger.sinks.iceberg.kind import X",
        "sinks/merging/keys.py": "from batchledger.sinks.staging import tables",
        "config/one.py": "TYPES = ('iceberg',)",
        "config/two.py": '"""Reads iceberg tables."""\nfrom batchledger.sinks.kinds import find_kind',
    }
    assert list(find_modules_that_name_a_kind(texts)) == ["sinks/topic/kind.py", "config/one.py"]


def test_what_is_beyond_its_bound_fails_and_a_goal_does_not(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bounds = [f'"{each.what}" = {{bound = {each.value}, goal = 0}}\n' for each in measure_files(checkout)]
    put(
        checkout,
        "pyproject.toml",
        f"{(checkout / 'pyproject.toml').read_text()}[tool.batchledger.house]\n{''.join(bounds)}",
    )
    assert main(checkout, is_fast=True) == 0
    assert capsys.readouterr().out == ""
    put(checkout, "include/batchledger/interfaces/page/app.py", "\n" * 21)
    assert main(checkout, is_fast=True) == 1
    assert "error: lines of the longest module: 21 is more than 20: interfaces/page/app.py\n" in capsys.readouterr().out


def test_table_has_measure_bound_goal_and_place() -> None:
    measures = [Measure("lines", 55_462), Measure("longest", 0.5, "a.py")]
    bounds = {"lines": Bound(55_500, 45_000), "longest": Bound(0.4)}
    assert list(show(measures, bounds)) == [
        "what     measured   bound    goal  where",
        "lines      55,462  55,500  45,000",
        "longest       0.5     0.4          a.py",
    ]
    assert list_beyond(measures, bounds) == ["error: longest: 0.5 is more than 0.4: a.py"]
