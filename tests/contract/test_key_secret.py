"""Keys hashed with a secret that the database does not hold: what a reader of the ledger finds, and what is refused."""

import hashlib
import hmac
import json
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial

import psycopg
import pyarrow as pa
import pytest
from psycopg import sql

from batchledger.database.transactions import transaction
from batchledger.ledger.fingerprints import require_fingerprint
from batchledger.ledger.migrate import migrate
from batchledger.ledger.rekeying import rekey
from batchledger.model.batch import Attempt
from batchledger.model.errors import BatchledgerError, ConfigurationError
from batchledger.model.hashing import fingerprint_of
from batchledger.model.offsets import OffsetRange
from batchledger.sinks.staging.key_secret import know_secret
from batchledger.sinks.staging.tables import hash_of_values
from tests.conftest import ROOT, TestServices, as_superuser, lend_database
from tests.contract import life
from tests.contract.life import ORDERS_0, ORDERS_1
from tests.contract.messages import BY_ID
from tests.contract.warehouses import PostgresWarehouse
from tests.fakes.work import ROW_SCHEMA
from tests.support import wait_until

SECRET = b"a secret of this test, 32 bytes long"
ANA = "ana@example.org"
GUESSES = ["eve@example.org", ANA, "bob@example.org"]
WAITING = b"""
select pid from pg_stat_activity
where datname = current_database() and query like 'update batchledger."sequence"%' and wait_event_type = 'Lock'"""
TABLES = ("message_key", "deleted_key", "duplicate", "sequence", "erased_key")


@pytest.fixture
def warehouse(warehouse_dsn: str) -> Iterator[PostgresWarehouse]:
    """A ledger of this test's own that hashes keys without a secret; its sink drops duplicates."""
    with lend_database(warehouse_dsn) as dsn:
        migrate(dsn)
        yield PostgresWarehouse(dsn, deduplication=BY_ID, read_secret=lambda: SECRET)


def rows_of(range_: OffsetRange, *ids: str) -> pa.RecordBatch:
    rows = [
        {"_topic": each.topic, "_partition": each.partition, "_offset": at, "_timestamp": life.NOW, "message_id": id_}
        for (each, at), id_ in zip(life.rows_of([range_]), ids, strict=True)
    ]
    return pa.RecordBatch.from_pylist(rows, schema=ROW_SCHEMA)


def stage(warehouse: PostgresWarehouse, range_: OffsetRange, *ids: str) -> Attempt:
    batch = life.store(warehouse, range_, run=f"run-{range_}")
    return life.stage(warehouse, batch, f"run-{range_}", rows=rows_of(range_, *ids))


def take(warehouse: PostgresWarehouse, range_: OffsetRange, *ids: str) -> int:
    """Take records through the whole life; return how many rows became visible."""
    attempt = stage(warehouse, range_, *ids)
    life.audit(warehouse, attempt)
    return life.publish(warehouse, attempt)


def ask(warehouse: PostgresWarehouse, query: str) -> list[tuple[object, ...]]:
    with psycopg.connect(warehouse.dsn) as connection:
        return connection.execute(query.encode()).fetchall()


def read_hashes(warehouse: PostgresWarehouse, table: str = "message_key") -> set[object]:
    query = sql.SQL("select key_hash from batchledger.{} where key_hash is not null")
    with psycopg.connect(warehouse.dsn) as connection:
        return {found for (found,) in connection.execute(query.format(sql.Identifier(table)))}


def digest_of(value: str) -> bytes:
    return hashlib.sha256(json.dumps([value]).encode()).digest()


def try_guesses(warehouse: PostgresWarehouse) -> list[str]:
    """What a reader of the ledger finds out by trying values."""
    found = read_hashes(warehouse)
    return [each for each in GUESSES if digest_of(each) in found]


def test_reader_of_the_ledger_finds_a_key_by_trying_only_without_a_secret(warehouse: PostgresWarehouse) -> None:
    take(warehouse, OffsetRange(ORDERS_0, 0, 1), ANA)
    assert try_guesses(warehouse) == [ANA]
    rekey(warehouse.dsn, SECRET)
    take(warehouse, OffsetRange(ORDERS_0, 1, 2), "carol@example.org")
    assert try_guesses(warehouse) == []
    expected = {hmac.digest(SECRET, digest_of(each), "sha256") for each in (ANA, "carol@example.org")}
    assert read_hashes(warehouse) == expected


def test_keys_from_before_the_secret_are_known_after_it(warehouse: PostgresWarehouse) -> None:
    ids = [f"m{each}" for each in range(1_000)]
    assert take(warehouse, OffsetRange(ORDERS_0, 0, 1_000), *ids) == 1_000
    repeated = OffsetRange(ORDERS_1, 0, 1_001)
    attempt = stage(warehouse, repeated, *ids, "new")
    life.audit(warehouse, attempt)
    assert rekey(warehouse.dsn, SECRET) == {each: 1_000 * (each == "message_key") for each in TABLES}
    assert life.publish(warehouse, attempt) == 1
    replay = life.store_replay(warehouse, repeated)
    again = life.stage(warehouse, replay, "again", rows=rows_of(repeated, *ids, "new"))
    life.audit(warehouse, again)
    assert life.publish(warehouse, again) == 1
    assert warehouse.prove().findings == ()


def test_without_hashing_the_old_keys_once_more_duplicates_would_be_published(warehouse: PostgresWarehouse) -> None:
    """The negative control: a ledger that only takes the secret over knows no key any more."""
    take(warehouse, OffsetRange(ORDERS_0, 0, 2), "a", "b")
    with psycopg.connect(warehouse.dsn) as connection:
        connection.execute("insert into batchledger.key_secret (fingerprint) values (%s)", [fingerprint_of(SECRET)])
    assert take(warehouse, OffsetRange(ORDERS_1, 0, 2), "a", "b") == 2


@pytest.mark.parametrize("step", ["stage", "publish"])
def test_another_secret_or_none_is_refused_and_nothing_is_written(warehouse: PostgresWarehouse, step: str) -> None:
    take(warehouse, OffsetRange(ORDERS_0, 0, 1), ANA)
    rekey(warehouse.dsn, SECRET)
    before = read_hashes(warehouse)
    audited = stage(warehouse, OffsetRange(ORDERS_1, 0, 1), ANA)
    life.audit(warehouse, audited)
    for other in (replace(warehouse, read_secret=lambda: b"x" * 32), replace(warehouse, read_secret=_have_none)):
        take_step = partial(life.publish, other, audited)
        if step == "stage":
            take_step = partial(stage, other, OffsetRange(ORDERS_1, 0, 1), ANA)
        with pytest.raises(ConfigurationError, match=r"hashed with another secret|no connection"):
            take_step()
    assert len(warehouse.read_target()) == 1
    assert read_hashes(warehouse) == before
    if step == "stage":
        # The attempts that were refused have fenced it.
        audited = stage(warehouse, OffsetRange(ORDERS_1, 0, 1), ANA)
        life.audit(warehouse, audited)
    assert life.publish(warehouse, audited) == 0


def _have_none() -> bytes:
    raise ConfigurationError("Airflow knows no connection 'batchledger_keys'.")


def test_secret_of_a_ledger_stays(warehouse: PostgresWarehouse) -> None:
    rekey(warehouse.dsn, SECRET)
    assert rekey(warehouse.dsn, SECRET) is None
    with pytest.raises(ConfigurationError, match="hashed with another secret already"):
        rekey(warehouse.dsn, b"x" * 32)


def test_migration_gives_a_secret_to_a_new_ledger_only(warehouse: PostgresWarehouse) -> None:
    take(warehouse, OffsetRange(ORDERS_0, 0, 1), ANA)
    migrate(warehouse.dsn, SECRET)
    assert ask(warehouse, "select count(*) from batchledger.key_secret") == [(0,)]
    with psycopg.connect(warehouse.dsn) as connection:
        connection.execute("delete from batchledger.message_key")
        connection.execute("insert into batchledger.duplicate values (1, 'p', 'orders', 0, 2, 'orders', 0, 0, null)")
    migrate(warehouse.dsn, SECRET)
    kept = "select fingerprint, used_by = session_user from batchledger.key_secret"
    assert ask(warehouse, kept) == [(fingerprint_of(SECRET), True)]


def test_migration_with_another_secret_than_the_ledger_has_is_refused(warehouse: PostgresWarehouse) -> None:
    migrate(warehouse.dsn, SECRET)
    migrate(warehouse.dsn, SECRET)
    with pytest.raises(ConfigurationError, match="hashed with another secret"):
        migrate(warehouse.dsn, b"x" * 32)


def test_recipe_of_the_guide_for_a_lost_secret_lets_the_ledger_take_a_new_one_over(
    warehouse: PostgresWarehouse,
) -> None:
    fill_every_table(warehouse)
    rekey(warehouse.dsn, b"x" * 32)
    require_fingerprint(warehouse.dsn, "p", fingerprint_of(b"x" * 32))
    with psycopg.connect(warehouse.dsn, autocommit=True) as connection:
        connection.execute(find_example("sql").encode())
    migrate(warehouse.dsn, SECRET)
    assert ask(warehouse, "select fingerprint from batchledger.key_secret") == [(fingerprint_of(SECRET),)]
    require_fingerprint(warehouse.dsn, "p", fingerprint_of(SECRET))


def test_lines_of_the_guide_compute_the_hash_of_a_key(warehouse: PostgresWarehouse) -> None:
    rekey(warehouse.dsn, SECRET)
    key = 'müller "\U0001f600" \\ \u007f'
    given = {"hashlib": hashlib, "hmac": hmac, "json": json, "secret": SECRET, "key": key}
    exec(find_example("python").replace('"ana@example.org"', "key"), given)  # noqa: S102 -- lines of our own guide
    with transaction(warehouse.dsn, "hash a key") as cursor:
        know_secret(cursor, warehouse.read_secret)
        cursor.execute(sql.SQL("select {}").format(hash_of_values(sql.SQL("{}::text").format(key))))
        assert cursor.fetchone() == (given["key_hash"],)


def find_example(language: str) -> str:
    """The only lines of this language in the guide."""
    (found,) = re.findall(rf"(?s)```{language}\n(.+?)```", (ROOT / "docs/guides/key-secret.md").read_text("utf-8"))
    return str(found)


def fill_every_table(warehouse: PostgresWarehouse) -> bytes:
    """Let each table that holds hashes hold this one."""
    digest = digest_of(ANA)
    statements = [
        "insert into batchledger.pipeline (name) values ('p') on conflict do nothing",
        "insert into batchledger.message_key values ('p', %(hash)s, 'orders', 0, 0, 1, 'infinity')",
        "insert into batchledger.deleted_key values ('p', %(hash)s, 'orders', 0, 0, null, 1)",
        "insert into batchledger.duplicate values (1, 'p', 'orders', 0, 1, 'orders', 0, 0, %(hash)s)",
        "insert into batchledger.duplicate values (1, 'p', 'orders', 0, 2, 'orders', 0, 0, null)",
        "insert into batchledger.sequence values ('p', %(hash)s, 1, '{}', 1)",
        "insert into batchledger.erased_key values ('p', '{customer}', 'salt', %(hash)s, 'orders', 0, 1)",
    ]
    with psycopg.connect(warehouse.dsn) as connection:
        for each in statements:
            connection.execute(each.encode(), {"hash": digest})
    return digest


def test_each_table_of_hashes_is_hashed_once_more(warehouse: PostgresWarehouse) -> None:
    digest = fill_every_table(warehouse)
    assert rekey(warehouse.dsn, SECRET) == dict.fromkeys(TABLES, 1)
    for table in TABLES:
        assert read_hashes(warehouse, table) == {hmac.digest(SECRET, digest, "sha256")}


def test_tables_of_hashes_are_all_that_the_ledger_has(warehouse: PostgresWarehouse) -> None:
    query = (
        "select table_name from information_schema.columns "
        "where table_schema = 'batchledger' and column_name = 'key_hash'"
    )
    assert {name for (name,) in ask(warehouse, query)} == set(TABLES)


def test_change_that_dies_half_way_has_changed_nothing(warehouse: PostgresWarehouse) -> None:
    digest = fill_every_table(warehouse)
    with (
        psycopg.connect(warehouse.dsn, autocommit=True) as watcher,
        psycopg.connect(warehouse.dsn) as holder,
        ThreadPoolExecutor(1) as pool,
    ):
        holder.execute("select from batchledger.sequence for update")
        running = pool.submit(rekey, warehouse.dsn, SECRET)
        wait_until(lambda: watcher.execute(WAITING).fetchone())
        watcher.execute(b"select pg_terminate_backend(pid) from (" + WAITING + b") waiting")
        with pytest.raises(BatchledgerError):
            running.result()
    assert ask(warehouse, "select count(*) from batchledger.key_secret") == [(0,)]
    for table in TABLES:
        assert read_hashes(warehouse, table) == {digest}


def test_change_waits_for_a_transaction_that_hashes_keys(warehouse: PostgresWarehouse) -> None:
    """Otherwise one transaction would write hashes of both kinds."""
    lock = "lock table batchledger.key_secret in access exclusive mode nowait"
    with transaction(warehouse.dsn, "hash keys") as cursor, psycopg.connect(warehouse.dsn) as other:
        other.execute(lock)
        other.rollback()
        know_secret(cursor, warehouse.read_secret)
        with pytest.raises(psycopg.errors.LockNotAvailable):
            other.execute(lock)


def test_statement_that_does_not_know_the_secret_is_refused(warehouse: PostgresWarehouse) -> None:
    """It never falls back to a hash without a secret."""
    rekey(warehouse.dsn, SECRET)
    query = sql.SQL("select {}").format(hash_of_values(sql.Literal("a")))
    with psycopg.connect(warehouse.dsn) as connection, pytest.raises(psycopg.errors.UndefinedTable):
        connection.execute(query)


def test_sql_of_checks_does_not_find_the_secret(warehouse: PostgresWarehouse) -> None:
    rekey(warehouse.dsn, SECRET)
    attempt = stage(warehouse, OffsetRange(ORDERS_0, 0, 2), "a", "a")
    with warehouse.sink.read_staged(attempt) as staged:
        assert staged.repeated.count == 1
        with pytest.raises(psycopg.errors.UndefinedTable):
            staged.connection.execute("select * from pg_temp.batchledger_pad")


def test_server_that_logs_all_statements_and_parameters_logs_no_secret(
    warehouse: PostgresWarehouse, services: TestServices
) -> None:
    name = sql.Identifier(str(ask(warehouse, "select current_database()")[0][0]))
    with psycopg.connect(as_superuser(warehouse.dsn), autocommit=True) as connection:
        for setting in (
            "log_statement = 'all'",
            "log_min_duration_statement = 0",
            "log_parameter_max_length = -1",
            "log_error_verbosity = 'default'",
        ):
            connection.execute(sql.SQL("alter database {} set " + setting).format(name))
    rekey(warehouse.dsn, SECRET)
    take(warehouse, OffsetRange(ORDERS_0, 0, 1), ANA)
    log = services.home.log_file("postgres").read_text(errors="replace")
    assert 'copy "pg_temp"."batchledger_pad" from stdin' in log
    assert fingerprint_of(SECRET).hex() in log, "parameters are not logged, so the search finds nothing"
    inner = bytes(each ^ 0x36 for each in SECRET).hex()
    outer = bytes(each ^ 0x5C for each in SECRET).hex()
    assert not [each for each in (SECRET.decode(), SECRET.hex(), inner, outer) if each in log]
