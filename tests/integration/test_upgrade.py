"""A ledger that an older release has made is migrated, and says the same as before.

`tests/upgrade` holds a warehouse of each release, and what its `verify` and `batches` said. Kafka of that time is gone:
where a test goes on, the same records are written to the same offsets of another one.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import psycopg
import pytest

from batchledger.ledger.migrate import migrate
from batchledger.ledger.schema import NEWEST_MIGRATION
from batchledger.source.kafka.log import KafkaLog
from tests.conftest import ROOT, Kafka
from tests.integration.test_cli import batchledger, read_answer
from tests.second_server import SecondServer, serve_second_postgres
from tests.support import create_topic, delete_topic
from tests.upgrade.make_fixture import SENT, send

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
    select format('table %s %s %s %s', relname, relkind, relrowsecurity, relacl)
    from pg_class where relnamespace = 'batchledger'::regnamespace
    union all
    select format(
        'column %s.%s %s %s not null %s, generated %s, identity %s, default %s, grants %s',
        c.relname, row_number() over (partition by c.oid order by a.attnum), a.attname,
        format_type(a.atttypid, a.atttypmod), a.attnotnull, a.attgenerated, a.attidentity,
        pg_get_expr(d.adbin, d.adrelid), a.attacl)
    from pg_class c
    join pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
    left join pg_attrdef d on d.adrelid = c.oid and d.adnum = a.attnum
    where c.relnamespace = 'batchledger'::regnamespace and c.relkind = 'r'
    union all
    select format('constraint %s.%s %s', conrelid::regclass, conname, pg_get_constraintdef(oid))
    from pg_constraint where connamespace = 'batchledger'::regnamespace
    union all
    select indexdef from pg_indexes where schemaname = 'batchledger'
    union all
    select pg_get_triggerdef(oid) from pg_trigger where not tgisinternal
    union all
    select format('%s, grants %s', pg_get_functiondef(oid), proacl)
    from pg_proc where pronamespace = 'batchledger'::regnamespace and prolang <> (
        select oid from pg_language where lanname = 'c')
    union all
    select format('policy %s %s', tablename, p) from pg_policies p where schemaname = 'batchledger'
"""


def test_migrated_ledger_has_the_shape_of_a_new_one(earlier: Earlier, second_server: SecondServer) -> None:
    """A migration that was edited after a ledger had run it is found here."""
    earlier.ask("migrate", "orders")
    new = replace(earlier, dsn=second_server.create_database())
    migrate(new.dsn)
    assert sorted(earlier.query(SHAPE)) == sorted(new.query(SHAPE))
    new.query("drop policy own_pipelines on batchledger.erased_key")
    assert sorted(earlier.query(SHAPE)) != sorted(new.query(SHAPE))


def test_migrated_ledger_proves_and_lists_what_the_older_version_did(earlier: Earlier) -> None:
    done = earlier.ask("migrate", "orders")
    assert (done["before"], done["after"]) == (earlier.said["migration"], NEWEST_MIGRATION)
    for name in earlier.said["pipelines"]:
        before, after = earlier.said["verify"][name], earlier.ask("verify", name)
        assert after["holds"]
        assert {key: after[key] for key in before if key in after} == before
        listed = [(each["batch_id"], each["state"], each["rows"]) for each in earlier.ask("batches", name)["batches"]]
        assert listed == [(each["batch_id"], each["state"], each["rows"]) for each in earlier.said["batches"][name]]


def test_row_that_is_lost_on_the_way_is_found_after_the_migration(earlier: Earlier) -> None:
    """The negative control: the proof reads the restored table."""
    earlier.query("delete from orders where (_partition, _offset) in (select _partition, _offset from orders limit 1)")
    earlier.ask("migrate", "orders")
    found = earlier.run("verify", "orders")
    assert found.returncode == 1
    assert "the ledger accepted" in found.stdout


def test_batch_that_an_older_version_has_staged_is_published_whole(earlier: Earlier) -> None:
    """Staging came along with the back-up."""
    earlier.ask("migrate", "payments")
    (blocked,) = [each for each in earlier.said["batches"]["payments"] if each["state"] == "blocked"]
    assert all(each.get("error") is None for each in earlier.ask("adopt-target", "--all", *WHY))
    earlier.ask("accept", str(blocked["batch_id"]), *WHY)
    assert earlier.query("select count(*) from payments") == [(20,)]
    assert earlier.ask("verify", "payments")["holds"]


@contextmanager
def records_at_their_offsets(earlier: Earlier, options: dict[str, str]) -> Iterator[None]:
    """Write what the older version has read into topics of their own, and let the ledger take them for the old ones."""
    try:
        # Offsets begin at 0 in a new topic only, whatever another test has left under this name.
        for name in KafkaLog(options).read_log(list(SENT)).identity_by_topic:
            delete_topic(options, name)
        for name, sent in SENT.items():
            create_topic(options, name, 2)
            for records in sent:
                send(name, *records)
        for name, topic in KafkaLog(options).read_log(list(SENT)).identity_by_topic.items():
            values = f"cluster_id = '{topic.cluster_id}', topic_id = '{topic.topic_id}'"
            earlier.query(f"update batchledger.position set {values} where topic = '{name}'")  # noqa: S608
        # Days may lie between the fixture and this test.
        earlier.query("update batchledger.message_key set remembered_until = now() + interval '1 day'")
        yield
    finally:
        for name in SENT:
            delete_topic(options, name)


def publish_more(earlier: Earlier, kafka: Kafka) -> list[int]:
    """Publish new ids beside ids that the older version has published, and return what audits exit with."""
    earlier.ask("migrate", "orders")
    with records_at_their_offsets(earlier, kafka.options):
        earlier.ask("adopt-target", "--all", *WHY)
        send("orders", range(75, 90), broken=1)
        send("customers", range(10, 30), amount=3.5)
        for name in SENT:
            assert [each["state"] for each in earlier.ask("run", name)] == ["published"]
        earlier.ask("replay", "orders", "--range", "orders[0] 5..50", *WHY)
        return [earlier.run("audit", name).returncode for name in SENT]


IDS_OF_ORDERS = "select count(*), count(distinct message_id) from orders"


def test_ledger_of_an_older_version_goes_on_publishing_and_each_row_is_there_once(
    earlier: Earlier, kafka: Kafka, spark: None
) -> None:
    """Keys that the older version remembers drop duplicates, and its rows are updated and replaced by a replay."""
    assert publish_more(earlier, kafka) == [0, 0]
    assert earlier.query(IDS_OF_ORDERS) == [(90, 90)]
    amounts = "select amount, count(*), count(distinct message_id) from customers group by amount order by amount"
    assert earlier.query(amounts) == [(2.5, 10, 10), (3.5, 20, 20)]
    assert earlier.ask("quarantine", "list", "orders")["total"] == 4
    for name in SENT:
        assert earlier.ask("verify", name)["holds"]


def test_without_the_keys_that_an_older_version_remembers_its_rows_come_twice(
    earlier: Earlier, kafka: Kafka, spark: None
) -> None:
    """The negative control."""
    earlier.query("delete from batchledger.message_key")
    publish_more(earlier, kafka)
    assert earlier.query(IDS_OF_ORDERS) == [(95, 90)]
