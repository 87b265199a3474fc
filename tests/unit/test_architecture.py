"""The map of rooms in ARCHITECTURE.md is the rule of imports, and what stands in one place stands there alone."""

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "include" / "batchledger"
TEXT = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")


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


WRITES = re.compile(
    r"(?i)(?:insert into|update|delete from|truncate|truncate table|merge into) (?:only )?batchledger\.(\w+)"
)
COMPONENTS = (ROOT / "docs" / "concepts" / "components.md").read_text(encoding="utf-8")
WRITERS = re.findall(r"(?m)^\| `(ledger|sinks/\w+)` \| (.*) \|$", COMPONENTS)


def test_table_of_writers_names_every_table_that_a_folder_writes_to() -> None:
    assert len(WRITERS) > 1
    assert {folder: list_written(folder) for folder, _ in WRITERS} == {
        folder: set(re.findall(r"`(\w+)`", told)) for folder, told in WRITERS
    }


def list_written(folder: str) -> set[str]:
    files = [path for path in (PACKAGE / folder).rglob("*") if path.suffix in (".py", ".sql")]
    texts = [path.read_text(encoding="utf-8") for path in files if "migrations" not in path.parts]
    return {table for text in texts for table in WRITES.findall(re.sub(r'"\s*"', "", text))}


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


def find_misplaced(folder: Path) -> Iterator[str]:
    """The statements of a folder that are there twice, or that the module of their file does not name."""
    texts = {path: path.read_text(encoding="utf-8") for path in folder.glob("*.sql")}
    named = [(path, name) for path, text in texts.items() for name in re.findall(r"(?m)^-- name: (\w+)$", text)]
    names = [name for _, name in named]
    yield from (f"{folder}: {name} is there twice" for name in {*names} if names.count(name) > 1)
    for path, name in named:
        module = folder.parent / f"{path.stem}.py"
        if not module.exists() or f'"{name}"' not in module.read_text(encoding="utf-8"):
            yield f"{path}: {name} belongs into the file of the module that names it"
    if not names:
        yield f"{folder}: no statement"


def test_statement_stands_in_the_file_of_the_module_that_names_it() -> None:
    """A statement of ``checks`` is a file."""
    folders = {*PACKAGE.rglob("sql")} - {PACKAGE / "checks" / "sql"}
    assert len(folders) > 5
    faults = [fault for folder in sorted(folders) for fault in find_misplaced(folder)]
    assert not faults, "\n".join(faults)


def test_statement_that_is_there_twice_or_elsewhere_is_found(tmp_path: Path) -> None:
    """The negative control."""
    (tmp_path / "sql").mkdir()
    (tmp_path / "one.py").write_text('NAMES = "first"')
    (tmp_path / "sql" / "one.sql").write_text("-- name: first\n-- name: first\n-- name: other\n")
    twice, elsewhere = find_misplaced(tmp_path / "sql")
    assert twice.endswith("first is there twice")
    assert elsewhere.endswith("one.sql: other belongs into the file of the module that names it")
