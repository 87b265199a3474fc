"""``batchledger watch --adopt`` on real services: a table that a loop has filled becomes a pipeline's target."""

from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import psycopg
import pytest
import yaml
from psycopg import sql

from batchledger.config.watch_file import load_watch
from batchledger.model.batch import Decided, Decision
from batchledger.model.errors import BatchledgerError, ConfigurationError, DecisionRefusedError
from batchledger.settings.connections import load_connection, postgres_dsn
from batchledger.sinks.table import adoption
from batchledger.sinks.table.adoption import TableAdoption
from batchledger.watching.adopting import Adoption, find_table
from batchledger.watching.building import build_table, build_watch
from batchledger.wiring import verify_pipeline
from tests.integration.test_cli import ask, batchledger
from tests.integration.test_replay_command import change
from tests.support import TestPipeline, Workplace, delete_records
from tests.watched import write_watch

RECORDS = 100
REASON = ("--apply", "--reason", "the loop is retired")


@contextmanager
def loop_session(dsn: str = "") -> Iterator[psycopg.Connection[Any]]:
    """A session of the loop, which logs in as the pipeline does."""
    with psycopg.connect(dsn or postgres_dsn(load_connection("warehouse"))) as connection:
        yield connection


def run_as_loop(shop: TestPipeline, *statements: str, dsn: str = "") -> None:
    """Run statements, which name the table as ``{table}``, and its primary key as ``{key}``."""
    table, key = (sql.Identifier(f"{shop.name}_target{end}") for end in ("", "_pkey"))
    with loop_session(dsn) as connection:
        for each in statements:
            connection.execute(sql.SQL(each).format(table=table, key=key))


def write_by_hand(shop: TestPipeline, numbers: Iterable[int]) -> None:
    """Write the rows of these records, as the loop does: the number says partition and offset."""
    rows = [(at % 2, at // 2, shop.sent[at], at, at / 4) for at in numbers]
    columns = "kafka_partition, kafka_offset, message_id, number, amount"
    run_as_loop(shop, *(f"insert into {{table}} ({columns}) values {row}" for row in rows))  # noqa: S608


def insert_row(shop: TestPipeline, values: str) -> None:
    """Insert one row, unless the table is locked."""
    run_as_loop(shop, "set lock_timeout = '100ms'", f"insert into {{table}} {values}")


def create_table(shop: TestPipeline, dsn: str = "") -> None:
    """Create the loop's table."""
    columns = "message_id text, number int, amount double precision, primary key (kafka_partition, kafka_offset)"
    created = f"create table {{table}} (kafka_partition int not null, kafka_offset bigint not null, {columns})"
    run_as_loop(shop, created, dsn=dsn)


def watch_target(shop: TestPipeline, **changes: Any) -> None:
    """Write the file of a watch of the table."""
    folder, dsn = shop.workplace.folder, shop.workplace.dsn
    write_watch(folder, dsn, f"{shop.name}_watch", shop.name, f"{shop.name}_target", **changes)


@pytest.fixture
def shop(workplace: Workplace) -> TestPipeline:
    """A topic of two partitions, a table that a loop has filled, a watch, and a pipeline that has never run."""
    shop = workplace.create(source={"holes": "transactional"})
    create_table(shop)
    shop.send(RECORDS)
    write_by_hand(shop, range(RECORDS))
    watch_target(shop)
    return shop


def adopt(shop: TestPipeline, *, is_kept: bool = True) -> Decided:
    """Adopt in this process."""
    watch = load_watch(f"{shop.name}_watch")
    table = find_table(watch, shop.config)
    order = Adoption(build_watch(watch), build_table(watch), shop.config, table, datetime.now(UTC), is_kept)
    return order.carry_out(Decision("ana", "the loop is retired"))


def adopt_to(shop: TestPipeline) -> Mapping[str, Any]:
    """Adopt; return where the pipeline stands then."""
    record = adopt(shop).record
    assert record is not None
    assert record.after is not None
    return record.after


def list_columns(shop: TestPipeline) -> list[str]:
    return [name for (name,) in shop.query(
        "select attname from pg_attribute where attrelid = %s::regclass and attnum > 0 and not attisdropped "
        "order by attnum", f"{shop.name}_target",
    )]  # fmt: skip


def test_pipeline_goes_on_behind_the_rows_of_the_loop_with_no_record_twice_or_missing(shop: TestPipeline) -> None:
    """The loop has left a few records; there are aborted ones among them, and more come after."""
    shop.send_in_transaction([b"aborted"] * 3, partition=0, commit=False)
    name = f"{shop.name}_watch"
    before = list_columns(shop)
    shown = batchledger("watch", name, "--adopt", shop.name)
    assert shown.returncode == 0
    for told in ("has to be stopped", "rename column", "kafka_offset", "Dry run: nothing was changed", "retire"):
        assert told in shown.stdout
    assert (list_columns(shop), ask("batches", shop.name)["batches"]) == (before, [])
    (done,) = ask("watch", name, "--adopt", shop.name, *REASON)
    assert (done["kind"], done["after"]["rows"], done["is_new"]) == ("adopt-rows", RECORDS, True)
    assert done["after"]["next_offset"] == {f"{shop.name}[0]": 50, f"{shop.name}[1]": 50}
    (batch,) = ask("batches", shop.name)["batches"]
    assert (batch["batch_id"], batch["rows"]) == (done["batch_id"], RECORDS)
    assert ask("verify", shop.name)["holds"]
    shop.send(30)
    (published,) = ask("run", shop.name)
    assert published["state"] == "published"
    shop.assert_exact()
    assert ask("verify", shop.name)["holds"]
    (again,) = ask("watch", name, "--adopt", shop.name, *REASON)
    assert (again["is_new"], again["decision_id"]) == (False, done["decision_id"])
    shop.assert_exact()
    watch_target(shop, coordinates="batchledger")
    ask("watch", name, "--forget")
    assert ask("watch", name)[0]["outcome"] == "proved"


def test_replay_replaces_rows_of_the_loop_and_verify_misses_a_deleted_one(shop: TestPipeline) -> None:
    adopt(shop)
    ask("replay", shop.name, "--range", f"{shop.name}[0] 3..6", "--reason", "they were wrong")
    shop.assert_exact()
    assert ask("verify", shop.name)["holds"]
    shop.query("delete from {target} where _partition = 1 and _offset = 7 returning 1")
    assert batchledger("verify", shop.name).returncode == 1


def test_former_writer_is_refused_by_the_table(shop: TestPipeline) -> None:
    adopt(shop)
    shop.send(2)
    with pytest.raises(psycopg.errors.UndefinedColumn):
        write_by_hand(shop, [RECORDS])
    with pytest.raises(psycopg.errors.NotNullViolation):
        insert_row(shop, "(_partition, _offset) values (0, 50)")


@pytest.mark.parametrize("fault", ["missing", "deleted", "twice", "unknown", "stranger"])
def test_rows_that_are_not_proved_are_not_taken_over(shop: TestPipeline, fault: str) -> None:
    before = list_columns(shop)
    if fault == "deleted":
        ask("watch", f"{shop.name}_watch")
    delete = "delete from {table} where kafka_partition = 0 and kafka_offset = 20"
    statements = {
        "missing": delete,
        "deleted": delete,
        "twice": "insert into {table} values (0, 20)",
        "unknown": "insert into {table} values (0, 9000)",
        "stranger": "insert into {table} values (7, 20)",
    }
    run_as_loop(shop, "alter table {table} drop constraint {key}", statements[fault])
    with pytest.raises(DecisionRefusedError, match="not proved") as refused:
        adopt(shop)
    assert {"stranger": "foreign"}.get(fault, fault) in str(refused.value)
    with pytest.raises(DecisionRefusedError, match="not proved"):
        adopt(shop, is_kept=False)
    assert (list_columns(shop), ask("batches", shop.name)["batches"]) == (before, [])


def test_row_that_comes_before_the_lock_is_seen_and_none_comes_behind_it(
    shop: TestPipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A row of the last record comes at the last moment: without the lock, the pipeline would bring it once more."""
    shop.send(4)
    lock, list_rows = TableAdoption.lock, TableAdoption.list_rows

    def write_then_lock(self: TableAdoption, cursor: psycopg.Cursor[Any]) -> None:
        write_by_hand(shop, [RECORDS])
        lock(self, cursor)

    def write_too_late(self: TableAdoption, cursor: psycopg.Cursor[Any]) -> Any:
        with pytest.raises(psycopg.errors.LockNotAvailable):
            insert_row(shop, "values (1, 50)")
        return list_rows(self, cursor)

    monkeypatch.setattr(TableAdoption, "lock", write_then_lock)
    monkeypatch.setattr(TableAdoption, "list_rows", write_too_late)
    assert adopt_to(shop)["next_offset"] == {f"{shop.name}[0]": 51, f"{shop.name}[1]": 50}
    ask("run", shop.name)
    shop.assert_exact()


def test_writer_that_is_at_work_is_not_waited_for_without_end(
    shop: TestPipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(adoption, "LOCK_WAITS", "200ms")
    shop.send(2)
    with loop_session() as connection:
        connection.execute(f'insert into "{shop.name}_target" values (1, 50)'.encode())  # noqa: S608
        with pytest.raises(DecisionRefusedError, match="another session writes to it"):
            adopt(shop)
        connection.rollback()
    assert adopt(shop).is_new


def test_without_the_lock_a_row_that_comes_behind_the_proof_would_be_one_too_many(
    shop: TestPipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The negative control of the lock: the row gets the batch's id, and verify finds it."""
    shop.send(2)
    take = TableAdoption.take

    def write_then_take(self: TableAdoption, cursor: psycopg.Cursor[Any], batch_id: int) -> None:
        write_by_hand(shop, [RECORDS])
        take(self, cursor, batch_id)

    monkeypatch.setattr(TableAdoption, "lock", lambda *_: None)
    monkeypatch.setattr(TableAdoption, "take", write_then_take)
    adopt(shop)
    assert not verify_pipeline(shop.config).holds


def test_of_two_adoptions_at_once_one_finds_that_it_is_done(
    shop: TestPipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    list_rows = TableAdoption.list_rows
    with ThreadPoolExecutor() as pool:
        second: list[Future[Decided]] = []

        def begin_another(self: TableAdoption, cursor: psycopg.Cursor[Any]) -> Any:
            if not second:
                second.append(pool.submit(adopt, shop))
            return list_rows(self, cursor)

        monkeypatch.setattr(TableAdoption, "list_rows", begin_another)
        first = adopt(shop)
        assert (first.is_new, second[0].result(60).is_new) == (True, False)
    assert ask("verify", shop.name)["holds"]


def test_adoption_that_is_killed_before_its_commit_has_changed_nothing(
    shop: TestPipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Table, batch and positions are of one transaction."""
    before = list_columns(shop)
    take = TableAdoption.take

    def take_then_lose_the_session(self: TableAdoption, cursor: psycopg.Cursor[Any], batch_id: int) -> None:
        take(self, cursor, batch_id)
        with psycopg.connect(shop.workplace.dsn) as connection:
            connection.execute("select pg_terminate_backend(%s)", [cursor.connection.info.backend_pid])

    monkeypatch.setattr(TableAdoption, "take", take_then_lose_the_session)
    with pytest.raises(BatchledgerError):
        adopt(shop)
    monkeypatch.undo()
    assert (list_columns(shop), ask("batches", shop.name)["batches"]) == (before, [])
    assert adopt(shop).is_new
    shop.assert_exact()


def test_rows_from_before_the_watch_begins_come_along_and_what_is_not_known_is_given_up(shop: TestPipeline) -> None:
    """Kafka has removed the first 20 records of partition 0; two of their rows are gone, and nothing says why."""
    run_as_loop(shop, "delete from {table} where kafka_partition = 0 and kafka_offset in (0, 10, 11)")
    delete_records(shop.workplace.kafka_options, shop.name, 0, 20)
    after = adopt_to(shop)
    assert (after["rows"], after["given_up"]) == (RECORDS - 3, 2)
    found = verify_pipeline(shop.config)
    assert found.holds
    assert (found.rows, found.accepted_loss) == (RECORDS - 3, 2)


def test_row_that_is_twice_before_the_watch_begins_is_found(shop: TestPipeline) -> None:
    run_as_loop(shop, "alter table {table} drop constraint {key}", "insert into {table} values (0, 3)")
    delete_records(shop.workplace.kafka_options, shop.name, 0, 20)
    with pytest.raises(DecisionRefusedError, match="twice"):
        adopt(shop)


def test_topic_that_was_created_again_is_refused(shop: TestPipeline) -> None:
    watch = load_watch(f"{shop.name}_watch")
    ask("watch", f"{shop.name}_watch")
    with psycopg.connect(shop.workplace.dsn) as connection:
        connection.execute("update batchledger.watch_start set topic_id = 'another' where watch = %s", [watch.name])
    with pytest.raises(DecisionRefusedError, match="created again"):
        adopt(shop)


def test_pipeline_that_has_begun_takes_nothing_over(shop: TestPipeline) -> None:
    change(shop, sink={"table": f"{shop.name}_other"})
    ask("run", shop.name)
    change(shop, sink={"table": f"{shop.name}_target"})
    with pytest.raises(DecisionRefusedError, match="has begun already"):
        adopt(shop)


def test_watch_and_pipeline_have_to_be_about_the_same(shop: TestPipeline) -> None:
    other = shop.workplace.create()
    with pytest.raises(DecisionRefusedError, match="it reads"):
        find_table(load_watch(f"{shop.name}_watch"), other.config)
    target = f"{shop.name}_target"
    for fault, changes in (
        ("its sink is", {"sink": {"table": "elsewhere"}}),
        ("does not append", {"sink": {"table": target, "mode": "upsert", "key": ["message_id"]}}),
        ("dedupe", {"sink": {"table": target}, "dedupe": {"key": ["message_id"], "remember": "7d"}}),
    ):
        change(shop, **changes)
        with pytest.raises(DecisionRefusedError, match=fault):
            find_table(load_watch(f"{shop.name}_watch"), shop.config)


def test_offsets_as_text_are_refused_with_what_to_do(shop: TestPipeline) -> None:
    run_as_loop(shop, "alter table {table} alter column kafka_offset type text")
    with pytest.raises(DecisionRefusedError, match="kafka_offset is text"):
        adopt(shop)


def test_table_of_another_role_is_adopted_once_its_owner_has_added_the_columns(workplace: Workplace) -> None:
    """The role of the pipeline may update the rows, and not alter the table."""
    shop = workplace.create()
    create_table(shop, workplace.dsn)
    shop.send(10)
    write_by_hand(shop, range(10))
    watch_target(shop)
    with pytest.raises(BatchledgerError, match="does not own it"):
        adopt(shop)
    added = "add column _topic text, add column _timestamp timestamptz, add column _batch_id bigint"
    changes = ("rename column kafka_partition to _partition", "rename column kafka_offset to _offset", added)
    run_as_loop(shop, *(f"alter table {{table}} {each}" for each in changes), dsn=workplace.dsn)
    watch_target(shop, coordinates={"partition": "_partition", "offset": "_offset"})
    adopt(shop)
    shop.send(4)
    ask("run", shop.name)
    shop.assert_exact()
    assert ask("verify", shop.name)["holds"]


def test_way_back_gives_the_table_its_columns_back_and_another_pipeline_may_take_it(shop: TestPipeline) -> None:
    before = sorted(list_columns(shop))
    means = adopt(shop, is_kept=False).means
    adopt(shop)
    ask("retire", shop.name, "--free-target", "--reason", "back to the loop")
    statements = [each.strip() for each in means[means.index(next(each for each in means if "retire" in each)) + 1 :]]
    assert statements
    run_as_loop(shop, *statements)
    assert sorted(list_columns(shop)) == before
    shop.send(2)
    write_by_hand(shop, range(RECORDS, RECORDS + 2))
    assert ask("watch", f"{shop.name}_watch")[0]["outcome"] == "proved"
    other = shop.workplace.create(name=f"{shop.name[:-1]}z")
    (shop.workplace.folder / f"{other.name}.yaml").write_text(
        yaml.safe_dump(yaml.safe_load(shop.path.read_text()) | {"name": other.name})
    )
    assert adopt(replace(shop, path=other.path)).is_new


def test_table_with_rows_of_another_topic_is_refused(shop: TestPipeline) -> None:
    topics = f"case when kafka_offset = 1 then 'else' else '{shop.name}' end"
    run_as_loop(shop, "alter table {table} add column topic text", f"update {{table}} set topic = {topics}")  # noqa: S608
    watch_target(shop, coordinates={"topic": "topic", "partition": "kafka_partition", "offset": "kafka_offset"})
    with pytest.raises((DecisionRefusedError, ConfigurationError), match="cannot take") as refused:
        adopt(shop)
    assert "else" in str(refused.value)
