"""The map of rooms in ARCHITECTURE.md is the rule of imports, and the house keeps what it promises of its size."""

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "include" / "batchledger"
TEXT = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
LONGEST = 400


def test_rooms_are_drawn_in_the_order_that_the_imports_keep() -> None:
    drawn = re.search(r"(?ms)^## The map$.*?^```$(.*?)^```$", TEXT)
    assert drawn is not None
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"][
        "contracts"
    ]
    (rooms,) = (each["layers"] for each in contracts if each["id"] == "rooms")
    lines = [re.split(r"\s{2,}", line)[0] for line in drawn[1].strip().splitlines()]
    assert [each for each in lines if each] == rooms


def test_name_of_a_class_has_one_meaning() -> None:
    names = [name for path in PACKAGE.rglob("*.py") for name in re.findall(r"(?m)^class (\w+)", path.read_text())]
    assert {each for each in names if names.count(each) > 1} == set()


def test_no_module_is_longer_than_one_reads_at_once() -> None:
    lines = {str(path.relative_to(PACKAGE)): len(path.read_text().splitlines()) for path in PACKAGE.rglob("*.py")}
    assert {name: count for name, count in lines.items() if count > LONGEST} == {}


WRITES = re.compile(
    r"(?i)(?:insert into|update|delete from|truncate|truncate table|merge into) (?:only )?batchledger\.(\w+)"
)
COMPONENTS = (ROOT / "docs" / "concepts" / "components.md").read_text(encoding="utf-8")
WRITERS = re.findall(r"(?m)^\| `(ledger|sinks/\w+)` \| (.*) \|$", COMPONENTS)


@pytest.mark.parametrize(("folder", "told"), WRITERS, ids=[folder for folder, _ in WRITERS])
def test_table_of_writers_names_every_table_that_a_folder_writes_to(folder: str, told: str) -> None:
    files = [path for path in (PACKAGE / folder).rglob("*") if path.suffix in (".py", ".sql")]
    texts = [path.read_text(encoding="utf-8") for path in files if "migrations" not in path.parts]
    written = {table for text in texts for table in WRITES.findall(re.sub(r'"\s*"', "", text))}
    assert written == set(re.findall(r"`(\w+)`", told))


def test_no_other_folder_writes_to_the_ledger() -> None:
    """What people look at by ``books`` changes nothing."""
    known = [PACKAGE / folder for folder, _ in WRITERS]
    texts = {
        path: path.read_text(encoding="utf-8")
        for path in PACKAGE.rglob("*")
        if path.suffix in (".py", ".sql") and not any(path.is_relative_to(each) for each in (*known, PACKAGE / "local"))
    }
    assert not [path for path, text in texts.items() if WRITES.search(re.sub(r'"\s*"', "", text))]


OPENED = re.compile(r"\b(?:psycopg2?|asyncpg)\.connect\(|\bcreate_(?:async_)?engine\(|onnection\.connect\(")


def test_sessions_of_postgresql_are_opened_in_one_place() -> None:
    """The engine of a lake's catalog is PyIceberg's own."""
    files = [each for each in PACKAGE.rglob("*.py") if each.relative_to(PACKAGE).parts[0] != "local"]
    opened = {each.name: OPENED.findall(each.read_text(encoding="utf-8")) for each in files}
    assert {name: found for name, found in opened.items() if found} == {"sessions.py": ["psycopg.connect("]}


def name_folder(folder: Path) -> str:
    return str(folder.parent.relative_to(PACKAGE))


# A statement of ``checks`` is a file.
@pytest.mark.parametrize("folder", sorted({*PACKAGE.rglob("sql")} - {PACKAGE / "checks" / "sql"}), ids=name_folder)
def test_statement_stands_in_the_file_of_the_module_that_names_it(folder: Path) -> None:
    texts = {path: path.read_text(encoding="utf-8") for path in folder.glob("*.sql")}
    named = [(path, name) for path, text in texts.items() for name in re.findall(r"(?m)^-- name: (\w+)$", text)]
    names = [name for _, name in named]
    assert len(names) == len(set(names)) > 0
    for path, name in named:
        module = (folder.parent / f"{path.stem}.py").read_text(encoding="utf-8")
        assert f'"{name}"' in module, name
