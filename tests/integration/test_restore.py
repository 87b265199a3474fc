"""A warehouse that was dumped and restored, and a ledger older than its targets, by pg_dump and pg_restore."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest
from psycopg import sql

from batchledger.ledger.migrate import migrate
from batchledger.lifecycle import run_batch
from batchledger.local.stack.home import Credentials
from batchledger.model.checks import ACCEPTED_BY_TARGET
from batchledger.model.errors import BatchBlockedError, TargetChangedError, TargetRefusedError
from batchledger.wiring import verify_pipeline
from tests.conftest import as_superuser
from tests.integration.test_cli import ask, batchledger
from tests.runner import create_runner
from tests.second_server import SecondServer, dump, restore, serve_second_postgres
from tests.support import TestPipeline, Workplace, admin_client

WHY = ("--reason", "moved to another server")
LEDGER = ("--schema=batchledger", "--extension=btree_gist")
KEYED = {"mode": "upsert", "key": ["message_id"]}


@pytest.fixture(scope="module")
def second_server() -> Iterator[SecondServer]:
    """A cluster that was made anew, with the role that a dump of the first one names: a dump holds no roles."""
    with serve_second_postgres() as server:
        create_runner(server.dsn, Credentials.of(server.home))
        yield server


@pytest.fixture
def workshop(workplace: Workplace, second_server: SecondServer) -> Iterator[Workplace]:
    """A workplace whose ledger is in a database of its own, so that it can be put back without harm to others."""
    dsn = second_server.create_database()
    migrate(dsn)
    with second_server.connected(dsn):
        yield replace(workplace, dsn=dsn)


def run(pipeline: TestPipeline, name: str) -> None:
    """Publish the next batch."""
    assert run_batch.run_once(pipeline.platform(), name) is not None


def grow(pipeline: TestPipeline, *names: str) -> None:
    """Publish a batch of new records by each of these runs."""
    for name in names:
        pipeline.send(10)
        run(pipeline, name)


def test_dumped_and_restored_warehouse_goes_on_exactly_once_its_targets_are_adopted(
    workplace: Workplace, second_server: SecondServer, tmp_path: Path
) -> None:
    appended, keyed = workplace.create(), workplace.create(sink=KEYED)
    pipelines = [appended, keyed, workplace.create(into="topic"), workplace.create(into="lake"), workplace.create()]
    *published, unread = pipelines
    for each in published:
        grow(each, "before-1", "before-2")
    dump(workplace.dsn, tmp_path / "warehouse")
    restored = second_server.create_database()
    # Targets are a role's own, and only a superuser gives a role tables before its grants are there.
    restore(tmp_path / "warehouse", as_superuser(restored, Credentials.of(second_server.home)))
    moved = {each.name: replace(each, workplace=replace(workplace, dsn=restored)) for each in pipelines}
    with second_server.connected(restored):
        for each in (appended, keyed):
            moved[each.name].send(10)
            with pytest.raises(TargetChangedError) as refused:
                run(moved[each.name], "refused")
            assert refused.value.pipeline == each.name
            assert f"batchledger adopt-target {each.name} --reason WHY" in str(refused.value)
        shown = ask("adopt-target", appended.name, "--dry-run", *WHY)
        assert (shown["before"]["target"], shown["after"]["rows_found"]) == (f"public.{appended.name}_target", 20)
        with pytest.raises(TargetChangedError):
            run(moved[appended.name], "still-refused")
        adopted = {each["pipeline"]: each for each in ask("adopt-target", "--all", *WHY)}
        assert {name for name, each in adopted.items() if each["is_new"]} == {appended.name, keyed.name}
        assert "error" not in str(adopted)
        assert not ask("adopt-target", appended.name, *WHY)["is_new"]
        for each in (appended, keyed):
            run(moved[each.name], "after")
        for each in (*published[2:], unread):
            grow(moved[each.name], "after")
        for each in pipelines:
            moved[each.name].assert_exact()
        (decision,) = ask("batches", keyed.name)["decisions"]
        assert (decision["kind"], decision["reason"]) == ("adopt-target", "moved to another server")


def test_target_that_differs_from_the_ledger_is_not_adopted_and_what_differs_is_said(workshop: Workplace) -> None:
    pipeline = workshop.create()
    grow(pipeline, "first")
    with psycopg.connect(workshop.dsn) as connection:
        table = sql.Identifier("public", f"{pipeline.name}_target")
        connection.execute(sql.SQL("alter table {} rename to other").format(table))
        connection.execute(sql.SQL("create table {} (like public.other)").format(table))
    refused = batchledger("adopt-target", pipeline.name, *WHY)
    assert refused.returncode == 2
    said = " ".join(refused.stderr.split())
    assert "the ledger accepted 5 rows, the target holds 0" in said
    assert "verify does not hold against it" in said
    assert "Nothing was changed." in said


def lose_a_day(pipeline: TestPipeline, file: Path) -> None:
    """Publish two batches, then put the ledger back to the first of them, beside a target that stays as it is."""
    dsn = pipeline.workplace.dsn
    grow(pipeline, "yesterday")
    dump(dsn, file, *LEDGER)
    grow(pipeline, "today")
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("drop schema batchledger cascade")
    restore(file, dsn)


def test_ledger_older_than_its_table_appends_nothing_twice_and_goes_on_where_rows_behind_it_are_removed(
    workshop: Workplace, tmp_path: Path
) -> None:
    pipeline = workshop.create()
    lose_a_day(pipeline, tmp_path / "ledger")
    pipeline.send(10)
    with pytest.raises(BatchBlockedError, match=r"10 rows of .*\[0\] 5\.\.10.* that no") as told:
        run(pipeline, "tomorrow")
    assert told.value.failed == (ACCEPTED_BY_TARGET,)
    assert pipeline.count_target_rows() == 20
    with psycopg.connect(workshop.dsn) as connection:
        delete = sql.SQL(
            "delete from {} t using batchledger.position p where p.pipeline = %s and t._topic = p.topic "
            "and t._partition = p.partition and t._offset >= p.next_offset"
        )
        connection.execute(delete.format(sql.Identifier(f"{pipeline.name}_target")), [pipeline.name])
    (blocked,) = [each for each in ask("batches", pipeline.name)["batches"] if each["state"] == "blocked"]
    ask("run", pipeline.name, "--batch", str(blocked["batch_id"]))
    pipeline.assert_exact()


def test_ledger_older_than_a_table_that_is_updated_by_key_applies_the_same_again_and_is_exact(
    workshop: Workplace, tmp_path: Path
) -> None:
    pipeline = workshop.create(sink=KEYED)
    lose_a_day(pipeline, tmp_path / "ledger")
    grow(pipeline, "tomorrow")
    pipeline.assert_exact()


def test_ledger_older_than_its_topic_produces_nothing_twice_and_says_what_to_do(
    workshop: Workplace, tmp_path: Path
) -> None:
    pipeline = workshop.create(into="topic")
    lose_a_day(pipeline, tmp_path / "ledger")
    pipeline.send(10)
    with pytest.raises(TargetRefusedError, match="restored from a backup") as refused:
        run(pipeline, "tomorrow")
    assert refused.value.subject == f"{pipeline.name}_target"
    assert "batchledger skip" in str(refused.value)
    assert pipeline.count_target_rows() == 20
    ranges = [f"{pipeline.name}[{each}] 5..10" for each in (0, 1)]
    (open_batch,) = [each for each in ask("batches", pipeline.name)["batches"] if each["state"] == "planned"]
    ask("skip", pipeline.name, *ranges, "--discard-batch", str(open_batch["batch_id"]), *WHY)
    group = f"batchledger.{pipeline.name}.sink"
    with admin_client(workshop.kafka_options) as client:
        client.delete_consumer_groups([group])[group].result(30)
    run(pipeline, "tomorrow")
    assert pipeline.find_differences() == {}
    details = {each.detail for each in verify_pipeline(pipeline.config).findings}
    assert details == {"5 rows that no published batch accounts for"}


def test_ledger_older_than_its_iceberg_table_writes_nothing_twice_and_says_what_to_do(
    workshop: Workplace, tmp_path: Path
) -> None:
    pipeline = workshop.create(into="lake")
    lose_a_day(pipeline, tmp_path / "ledger")
    pipeline.send(10)
    with pytest.raises(TargetChangedError, match="is not in this ledger") as refused:
        run(pipeline, "tomorrow")
    assert "restore a newer ledger" in str(refused.value)
    assert pipeline.count_target_rows() == 20
