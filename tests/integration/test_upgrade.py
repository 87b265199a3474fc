"""A ledger that an older version has made is migrated, and says the same as before.

`tests/upgrade` holds warehouses of older versions, and what their `verify` and `batches` said. Kafka of that time is
gone.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import psycopg
import pytest

from batchledger.ledger.migrate import migrate
from batchledger.ledger.schema import known_revisions
from batchledger.ledger.writer_schemas import PostgresKeptSchemas
from tests.conftest import ROOT
from tests.integration.test_cli import batchledger, read_answer
from tests.second_server import SecondServer, serve_second_postgres

FIXTURES = sorted((ROOT / "tests" / "upgrade").glob("*.json"))
WHY = ("--reason", "the upgrade is over")


@dataclass(frozen=True)
class Earlier:
    """A restored warehouse, and what the version that made it said about it."""

    dsn: str
    said: dict[str, Any]
    pipelines: Path

    def run(self, *arguments: str) -> Any:
        """Run a command of today's version."""
        return batchledger(*arguments, BATCHLEDGER_PIPELINES=str(self.pipelines))

    def ask(self, *arguments: str) -> Any:
        """Run a command that has to succeed and return its JSON."""
        return read_answer(self.run(*arguments, "--json"))

    def query(self, text: str) -> list[tuple[Any, ...]]:
        """Read or change the warehouse."""
        with psycopg.connect(self.dsn) as connection:
            cursor = connection.execute(text.encode())
            return cursor.fetchall() if cursor.description else []


@pytest.fixture(scope="module")
def second_server() -> Iterator[SecondServer]:
    """A cluster that was made anew."""
    with serve_second_postgres() as server:
        yield server


@pytest.fixture(params=FIXTURES, ids=lambda file: file.stem)
def earlier(request: pytest.FixtureRequest, second_server: SecondServer, tmp_path: Path) -> Iterator[Earlier]:
    """The warehouse as the older version left it."""
    file: Path = request.param
    said = json.loads(file.read_text())
    for name, text in said["pipelines"].items():
        (tmp_path / f"{name}.yaml").write_text(text)
    dsn = second_server.create_database()
    with psycopg.connect(dsn) as connection:
        connection.execute(file.with_suffix(".sql").read_bytes())
    with second_server.connected(dsn):
        yield Earlier(dsn, said, tmp_path)


def test_there_is_a_ledger_of_an_older_version() -> None:
    assert FIXTURES


def test_ledger_of_an_older_version_is_refused_until_it_is_migrated_and_nothing_changes(earlier: Earlier) -> None:
    for command in (("verify", "orders"), ("plan", "orders"), ("pause", "orders", *WHY)):
        refused = earlier.run(*command)
        said = " ".join(refused.stderr.split())
        assert refused.returncode == 2, said
        assert f"error: The ledger is at migration {earlier.said['migration']}" in said
        assert "do: Bring it up to date: batchledger migrate" in said
    assert earlier.query("select version_num from batchledger.migration") == [(earlier.said["migration"],)]


SHAPE = """
    select format('column %s.%s %s %s %s', table_name, column_name, data_type, is_nullable, column_default)
    from information_schema.columns where table_schema = 'batchledger'
    union all
    select format('constraint %s %s', conrelid::regclass, pg_get_constraintdef(oid))
    from pg_constraint where connamespace = 'batchledger'::regnamespace and contype <> 'n'
    union all
    select indexdef from pg_indexes where schemaname = 'batchledger'
    union all
    select pg_get_triggerdef(oid) from pg_trigger where not tgisinternal
"""


def test_migrated_ledger_has_the_shape_of_a_new_one(earlier: Earlier, second_server: SecondServer) -> None:
    """A migration that was edited after a ledger had run it is found here."""
    earlier.ask("migrate", "orders")
    new = replace(earlier, dsn=second_server.create_database())
    migrate(new.dsn)
    assert sorted(earlier.query(SHAPE)) == sorted(new.query(SHAPE))


def test_migrated_ledger_proves_and_lists_what_the_older_version_did(earlier: Earlier) -> None:
    done = earlier.ask("migrate", "orders")
    assert (done["before"], done["after"]) == (earlier.said["migration"], known_revisions()[-1])
    for name in earlier.said["pipelines"]:
        before, after = earlier.said["verify"][name], earlier.ask("verify", name)
        assert after["holds"]
        assert {key: after[key] for key in before if key in after} == before
        listed = [(each["batch_id"], each["state"], each["rows"]) for each in earlier.ask("batches", name)["batches"]]
        assert listed == [(each["batch_id"], each["state"], each["rows"]) for each in earlier.said["batches"][name]]


@pytest.mark.parametrize(
    "earlier", [each for each in FIXTURES if each.stem >= "0023"], ids=lambda file: file.stem, indirect=True
)
def test_migrated_ledger_has_the_schemas_of_records_as_before(earlier: Earlier) -> None:
    """Since migration 0023 it keeps the schemas that records name, and which attempts had these records."""
    earlier.ask("migrate", "shipments")
    for name, before in earlier.said["writer_schemas"].items():
        assert earlier.ask("schema", name)["writer_schemas"] == before
        assert len(before) == (2 if name == "shipments" else 0)
        for each in before:
            kept = PostgresKeptSchemas(earlier.dsn, each["registry"], batch_id=0, number=0).find(each["id"])
            assert kept is not None
            assert (kept.id, kept.fingerprint) == (each["id"], each["fingerprint"])


def test_row_that_is_lost_on_the_way_is_found_after_the_migration(earlier: Earlier) -> None:
    """The negative control: the proof reads the restored table."""
    earlier.query("delete from orders where (_partition, _offset) in (select _partition, _offset from orders limit 1)")
    earlier.ask("migrate", "orders")
    found = earlier.run("verify", "orders")
    assert found.returncode == 1
    assert "the ledger accepted" in found.stdout


def test_batch_that_an_older_version_has_staged_is_published_whole_or_refused_and_can_be_given_up(
    earlier: Earlier,
) -> None:
    """Staging came along with the back-up. If a migration has changed its form, the batch has to be staged again."""
    earlier.ask("migrate", "payments")
    (blocked,) = [each for each in earlier.said["batches"]["payments"] if each["state"] == "blocked"]
    assert all(each.get("error") is None for each in earlier.ask("adopt-target", "--all", *WHY))
    accepted = earlier.run("accept", str(blocked["batch_id"]), *WHY)
    is_form_known = earlier.said["migration"] >= "0013"
    assert accepted.returncode == (0 if is_form_known else 3), accepted.stderr
    if not is_form_known:
        assert earlier.query("select count(*) from payments") == [(10,)]
        earlier.ask("discard", str(blocked["batch_id"]), *WHY)
    assert earlier.query("select count(*) from payments") == [(20 if is_form_known else 10,)]
    assert earlier.ask("verify", "payments")["holds"]
