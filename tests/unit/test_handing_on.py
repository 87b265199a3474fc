"""A publication goes downward: its steps hand values on, and none of them looks for what another one has left."""

import re
from collections import defaultdict
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "include" / "batchledger"
SCHEMA = "batchledger_staging"
TABLE = re.compile(r"\bbatchledger_\w+\b")
MODULES = [each for room in ("ledger", "sinks") for each in (PACKAGE / room).rglob("*.py")]


def name_tables(module: Path) -> set[str]:
    """The temporary tables that a module names, with its statements."""
    statements = module.parent / "sql" / f"{module.stem}.sql"
    texts = [each.read_text(encoding="utf-8") for each in (module, statements) if each.exists()]
    return {name for text in texts for name in TABLE.findall(text)} - {SCHEMA}


def test_name_of_a_temporary_table_is_known_to_the_module_that_makes_it_and_to_no_other() -> None:
    """Another module gets a value that has the table, so nothing depends on what a transaction did before."""
    modules: dict[str, list[str]] = defaultdict(list)
    for module in MODULES:
        for name in name_tables(module):
            modules[name].append(str(module.relative_to(PACKAGE)))
    assert len(modules) > 10
    assert {name: found for name, found in modules.items() if len(found) > 1} == {}


def test_sink_knows_no_publication_that_it_could_call_back() -> None:
    sinks = [each for each in MODULES if each.is_relative_to(PACKAGE / "sinks")]
    assert len(sinks) > 50
    assert [str(each) for each in sinks if re.search(r"\bPublication\b", each.read_text(encoding="utf-8"))] == []
