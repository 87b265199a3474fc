"""A target that ends well and does not take, or give up, every row: it is the target, and not a crash."""

from collections.abc import Iterator
from uuid import uuid4

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

from batchledger.model.batch import Attempt
from batchledger.model.errors import RowsRefusedError, StagingLostError
from tests.conftest import as_superuser
from tests.contract import life
from tests.contract.life import FIRST, ORDERS_0, SECOND
from tests.contract.test_refused_rows import alter, check, trigger
from tests.contract.updates import BY_OFFSET, Record, Story
from tests.contract.warehouses import PostgresWarehouse, open_postgres

PARTITIONED = """create table {t} (_topic text, _partition int, _offset bigint, _timestamp timestamptz,
    message_id text, _batch_id bigint) partition by list (_partition)"""
ADOPTED = """update batchledger.pipeline set target_identity = (
    select concat_ws('/', c.system_identifier, d.oid, ({lt}::regclass)::oid)
    from pg_control_system() c, pg_database d where d.datname = current_database())
    where target = {name}"""
SWALLOWING = {
    "trigger": (
        trigger("return case when new._offset % 2 = 0 then new end;"),
        r"(?s)ignores 1 of the 2 rows.*\sIt has: before trigger act\.",
    ),
    "trigger of a partition": (
        (
            "drop table {t}",
            PARTITIONED,
            "create table {s}.part partition of {t} for values in (0)",
            ADOPTED,
            *trigger("return null;", timing="before insert on {s}.part"),
        ),
        r"(?s)ignores 2 of the 2 rows.*\sIt has: before trigger act\.",
    ),
}


@pytest.fixture
def table(warehouse_dsn: str) -> Iterator[PostgresWarehouse]:
    yield from open_postgres(warehouse_dsn)


@pytest.mark.parametrize("ask", [life.publish, check], ids=["published", "checked before"])
@pytest.mark.parametrize(("statements", "told"), SWALLOWING.values(), ids=SWALLOWING)
def test_target_that_swallows_rows_refuses_them(
    table: PostgresWarehouse, statements: tuple[str, ...], told: str, ask: object
) -> None:
    life.take_to_published(table, FIRST)
    alter(table, *statements)
    attempt = life.take_to_audited(table, SECOND, run="run-2")
    with pytest.raises(RowsRefusedError, match=told) as refused:
        ask(table, attempt)  # type: ignore[operator]
    assert not refused.value.retryable
    assert life.next_offsets(table) == {ORDERS_0: 3}


def test_trigger_that_lets_every_row_pass_is_no_reason_to_refuse(table: PostgresWarehouse) -> None:
    """Negative control."""
    life.take_to_published(table, FIRST)
    alter(table, *trigger("return new;"))
    life.take_to_published(table, SECOND, run="run-2")
    assert life.target_coordinates(table) == life.rows_of([FIRST, SECOND])


def test_staging_that_a_crash_has_emptied_is_still_told_from_a_target_that_swallows(
    table: PostgresWarehouse,
) -> None:
    """S113."""
    life.take_to_published(table, FIRST)
    alter(table, *trigger("return null;"))
    attempt = life.take_to_audited(table, SECOND, run="run-2")
    table.lose_staging()
    with pytest.raises(StagingLostError):
        life.publish(table, attempt)


def test_target_that_keeps_what_is_published_again_refuses_the_replay(table: PostgresWarehouse) -> None:
    """I8: the old rows would stay beside the new ones."""
    life.take_to_published(table, FIRST)
    alter(table, *trigger("return null;", timing="before delete on {t}"))
    replay = life.take_replay_to_audited(table, FIRST)
    with pytest.raises(RowsRefusedError, match="keeps 3 rows of the offsets") as refused:
        life.publish(table, replay)
    assert refused.value.batch_id == replay.batch.batch_id
    assert "It has: before trigger act." in str(refused.value)
    alter(table, "drop trigger act on {t}")
    assert life.publish(table, replay) == 3
    assert life.target_coordinates(table) == life.rows_of([FIRST])


def updated(table: PostgresWarehouse) -> Story:
    story = Story(table.with_rules(upsert=BY_OFFSET))
    story.publish(Record("AA", 1), Record("DL", 1))
    return story


def publish(story: Story, *records: Record) -> Attempt:
    attempt = story.stage(*records)
    life.audit(story.warehouse, attempt)
    life.publish(story.warehouse, attempt)
    return attempt


@pytest.mark.parametrize(
    ("timing", "record", "ignored"),
    [
        # Even if the key is there, PostgreSQL is about to insert first.
        ("before insert on {t}", Record("UA", 7), 2),
        ("before update on {t}", Record("AA", 7), 2),
        ("before delete on {t}", Record("AA", None), 1),
    ],
    ids=["insert", "update", "delete"],
)
def test_updates_that_the_target_swallows_are_refused(
    table: PostgresWarehouse, timing: str, record: Record, ignored: int
) -> None:
    story = updated(table)
    alter(table, *trigger("return null;", timing=timing))
    with pytest.raises(RowsRefusedError, match=f"ignores {ignored} of the 2 rows") as refused:
        publish(story, record, Record("DL", 1))
    assert "It has: before trigger act." in str(refused.value)
    assert story.state() == {("AA", 1): 1, ("DL", 1): 1}


def test_updates_of_a_target_with_a_harmless_trigger_are_applied_also_when_they_come_again(
    table: PostgresWarehouse,
) -> None:
    """Negative control: an older record changes nothing, and is not swallowed."""
    story = updated(table)
    alter(table, *trigger("return coalesce(new, old);", timing="before insert or update or delete on {t}"))
    publish(story, Record("AA", 2), Record("UA", 3), Record("DL", None))
    story.publish_again(0)
    story.publish_again(1)
    assert story.state() == {("AA", 1): 2, ("UA", 1): 3}


def test_row_security_that_rejects_or_hides_rows_blocks_and_never_swallows(table: PostgresWarehouse) -> None:
    """A writer whom policies are for: what they reject is refused, and what they hide is not published again."""
    life.take_to_published(table, FIRST)
    user = f"user_{uuid4().hex[:12]}"
    name = sql.Identifier(user)
    with psycopg.connect(as_superuser(table.dsn), autocommit=True) as owner:
        owner.execute(sql.SQL("create role {0} login password {1}").format(name, user))
        try:
            for schema in ("batchledger", "batchledger_staging", table.schema):
                grant = "grant all on schema {0} to {1}; grant all on all tables in schema {0} to {1}"
                owner.execute(sql.SQL(grant).format(sql.Identifier(schema), name))
            owner.execute(sql.SQL("grant all on all sequences in schema batchledger to {}").format(name))
            alter(
                table,
                "alter table {t} enable row level security",
                "create policy writing on {t} for insert with check (_offset <> 4)",
                "create policy reading on {t} for select using (_offset <> 1)",
                "create policy removing on {t} for delete using (_offset <> 1)",
            )
            mine = PostgresWarehouse(make_conninfo(table.dsn, user=user, password=user), table.pipeline, table.schema)
            attempt = life.take_to_audited(mine, SECOND, run="run-2")
            with pytest.raises(RowsRefusedError, match="violates row-level security policy"):
                check(mine, attempt)
            replay = life.take_replay_to_audited(mine, FIRST)
            with pytest.raises(RowsRefusedError, match="affected by row-level security policy"):
                life.publish(mine, replay)
        finally:
            owner.execute(sql.SQL("drop owned by {0}; drop role {0}").format(name))
    assert life.target_coordinates(table) == life.rows_of([FIRST])
