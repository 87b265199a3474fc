"""What a role needs to run one pipeline: as much as the statements of the product ask for, and decisions stay."""

import re
from pathlib import Path

import pytest

from batchledger.ledger.grants import RIGHTS_BY_TABLE, list_grants
from batchledger.ledger.housekeeping import RIGHTS_TO_JOIN
from tests.conftest import ROOT

PACKAGE = ROOT / "include" / "batchledger"
FILES = [
    path
    for path in sorted(PACKAGE.rglob("*"))
    # The owner migrates and renames.
    if path.suffix in (".py", ".sql")
    and path.stem != "renaming"
    and not {"migrations", "migrate.py", "local"} & set(path.parts)
]
STATEMENT = re.compile(r"(?i)\b(insert|update|delete)\b(?: into| from)?(?: only)? batchledger\.(\w+)")
# The owner of the ledger writes who may do what, and the fingerprint of the secret.
OF_THE_OWNER = {"pipeline_role", "key_secret"}
# The owner grants them apart from the others.
TO_JOIN = {("delete", each.rpartition(".")[2]) for each in RIGHTS_TO_JOIN.split(", ")}


def list_changes(path: Path) -> set[tuple[str, str]]:
    text = re.sub(r'"\s*f?"', "", path.read_text(encoding="utf-8"))
    return {(verb.lower(), table) for verb, table in STATEMENT.findall(text) if table not in OF_THE_OWNER}


def test_role_gets_each_right_that_a_statement_needs() -> None:
    missing = [
        f"{path.relative_to(PACKAGE)}: {verb} {table}: the right is missing in RIGHTS_BY_TABLE"
        for path in FILES
        for verb, table in list_changes(path) - TO_JOIN
        if verb not in RIGHTS_BY_TABLE[table]
    ]
    assert not missing, "\n".join(missing)


def test_no_role_may_delete_batches_by_the_grant_for_runs() -> None:
    assert {table for _, table in TO_JOIN} == {"attempt", "attempt_writer_schema", "batch", "batch_range"}
    assert all("delete" not in RIGHTS_BY_TABLE[table] for _, table in TO_JOIN)


def test_there_are_statements_of_each_kind() -> None:
    """Otherwise the search would have found nothing."""
    found = {change for path in FILES for change in list_changes(path)}
    assert {("insert", "decision"), ("update", "position"), ("delete", "message_key")} <= found


@pytest.mark.parametrize("table", ["decision", "payload_look"])
def test_role_adds_what_stays_and_changes_nothing_of_it(table: str) -> None:
    assert re.fullmatch(r"select, insert \([^)]+\)", RIGHTS_BY_TABLE[table])


def test_role_cannot_write_the_count_of_decisions_nor_who_may_do_what() -> None:
    assert "decision_count" not in RIGHTS_BY_TABLE["pipeline"]
    assert OF_THE_OWNER.isdisjoint(RIGHTS_BY_TABLE)


def test_names_are_quoted() -> None:
    texts = [each.as_string(None) for each in list_grants("o'rders", 'my "role"', "shop", ("My shop", "Orders, new"))]
    assert "values ('my \"role\"', 'o''rders')" in texts[0]
    assert texts[1] == 'grant connect, temporary on database "shop" to "my ""role"""'
    assert texts[-1] == 'grant select, insert, update, delete on "My shop"."Orders, new" to "my ""role"""'


def test_sink_that_is_no_table_of_this_database_needs_no_right_on_one() -> None:
    with_table, without = (list_grants("orders", "r", "shop", target) for target in (("public", "orders"), None))
    assert with_table[: len(without)] == without
    assert len(with_table) == len(without) + 2
