"""The map of rooms in ARCHITECTURE.md is the code: no module is missing or made up, and its order is the rule."""

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "include" / "batchledger"
TEXT = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
LONGEST = 400
MAP = {
    room: set(re.findall(r"`([\w/]+)`", named)) for room, named in re.findall(r"(?m)^\| `([\w/]+)/` \| (.*) \|$", TEXT)
}


def list_rooms() -> list[str]:
    """Every folder with modules, but the migrations, which are a list of their own."""
    folders = {path.parent for path in PACKAGE.rglob("*.py")} - {PACKAGE}
    return sorted(str(each.relative_to(PACKAGE)) for each in folders if "migrations" not in each.parts)


def list_modules(room: Path) -> set[str]:
    """The modules of a room, and the rooms in it with a slash."""
    modules = {each.stem for each in room.glob("*.py")} - {"__init__"}
    return modules | {f"{each.parent.name}/" for each in room.glob("*/__init__.py") if each.parent.name != "migrations"}


def test_map_names_every_room() -> None:
    assert sorted(MAP) == list_rooms()


@pytest.mark.parametrize("room", list_rooms())
def test_map_names_every_module_of_a_room(room: str) -> None:
    assert MAP[room] == list_modules(PACKAGE / room)


def test_rooms_are_drawn_in_the_order_that_the_imports_keep() -> None:
    drawn = re.search(r"(?ms)^## Rooms$.*?^```$(.*?)^```$", TEXT)
    assert drawn is not None
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"][
        "contracts"
    ]
    (rooms,) = (each["layers"] for each in contracts if each["id"] == "rooms")
    assert [re.split(r"\s{2,}", line)[0] for line in drawn[1].strip().splitlines()] == rooms


def test_name_of_a_class_has_one_meaning() -> None:
    names = [name for path in PACKAGE.rglob("*.py") for name in re.findall(r"(?m)^class (\w+)", path.read_text())]
    assert {each for each in names if names.count(each) > 1} == set()


def test_no_module_is_longer_than_one_reads_at_once() -> None:
    lines = {str(path.relative_to(PACKAGE)): len(path.read_text().splitlines()) for path in PACKAGE.rglob("*.py")}
    assert {name: count for name, count in lines.items() if count > LONGEST} == {}


WRITES = re.compile(
    r"(?i)(?:insert into|update|delete from|truncate|truncate table|merge into) (?:only )?batchledger\.(\w+)"
)
WRITERS = re.findall(r"(?m)^\| `(ledger|staging|sinks)` \| (.*) \|$", TEXT)


@pytest.mark.parametrize(("folder", "told"), WRITERS, ids=[folder for folder, _ in WRITERS])
def test_table_of_writers_names_every_table_that_a_folder_writes_to(folder: str, told: str) -> None:
    files = [path for path in (PACKAGE / "adapters" / "postgres" / folder).rglob("*") if path.suffix in (".py", ".sql")]
    texts = [path.read_text(encoding="utf-8") for path in files if "migrations" not in path.parts]
    written = {table for text in texts for table in WRITES.findall(re.sub(r'"\s*"', "", text))}
    assert written == set(re.findall(r"`(\w+)`", told))


def test_every_folder_of_postgres_is_in_the_table_of_writers() -> None:
    assert sorted(folder for folder, _ in WRITERS) == sorted(
        each.name for each in (PACKAGE / "adapters" / "postgres").iterdir() if (each / "sql").is_dir()
    )


def name_folder(folder: Path) -> str:
    return folder.parent.name


@pytest.mark.parametrize("folder", sorted((PACKAGE / "adapters" / "postgres").rglob("sql")), ids=name_folder)
def test_statement_stands_in_the_file_of_the_module_that_names_it(folder: Path) -> None:
    texts = {path: path.read_text(encoding="utf-8") for path in folder.glob("*.sql")}
    named = [(path, name) for path, text in texts.items() for name in re.findall(r"(?m)^-- name: (\w+)$", text)]
    names = [name for _, name in named]
    assert len(names) == len(set(names)) > 0
    for path, name in named:
        module = (folder.parent / f"{path.stem}.py").read_text(encoding="utf-8")
        assert f'"{name}"' in module, name
