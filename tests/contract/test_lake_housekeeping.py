"""Housekeeping removes a branch of an Iceberg table if the ledger says that its attempt is over."""

from dataclasses import replace

import psycopg
import pytest

from batchledger.model.batch import Attempt, BatchState, Decision
from batchledger.model.housekeeping import Housekeeping, Leftover
from batchledger.sinks.iceberg.commits import branch_of
from tests.contract import life
from tests.contract.lake_warehouse import LakeWarehouse
from tests.contract.life import FIRST, SECOND
from tests.fakes.work import ROW_SCHEMA


def let_time_pass(lake: LakeWarehouse) -> None:
    """Let everything that is over be so since a year ago."""
    with psycopg.connect(lake.dsn) as connection:
        connection.execute(
            "update batchledger.attempt a set ended_at = a.ended_at - interval '1 year' from batchledger.batch b "
            "where b.batch_id = a.batch_id and b.pipeline = %s",
            [lake.pipeline],
        )
        earlier = "update batchledger.batch set published_at = published_at - interval '1 year' where pipeline = %s"
        connection.execute(earlier, [lake.pipeline])


def branches(lake: LakeWarehouse) -> set[str]:
    return {name for name, ref in lake.table.metadata.refs.items() if ref.snapshot_ref_type == "branch"} - {"main"}


def leave_branch(lake: LakeWarehouse, attempt: Attempt) -> str:
    """Let an attempt have a branch, as a process leaves it that dies."""
    lake.lake_table.stage(attempt, [])
    return branch_of(attempt)


def removed(done: Housekeeping) -> dict[Leftover, int]:
    return {each.kind: each.count for each in done.removals}


def test_branches_of_attempts_that_are_over_go_and_that_of_the_live_one_stays_and_is_published(
    lake: LakeWarehouse,
) -> None:
    leave_branch(lake, life.take_to_published(lake, FIRST))
    batch = life.store(lake, SECOND)
    life.stage(lake, batch, "run-1")
    at_work = life.stage(lake, batch, "run-2")
    discarded = life.stage(lake, life.store_replay(lake, FIRST), "again")
    lake.decisions.discard(discarded.batch.batch_id, Decision("ana", "not needed"))
    let_time_pass(lake)
    assert removed(lake.sink.tidy(is_dry_run=True)) == {Leftover.BRANCH: 3}
    assert len(branches(lake)) == 4
    assert removed(lake.sink.tidy()) == {Leftover.BRANCH: 3}
    assert branches(lake) == {branch_of(at_work)}
    assert removed(lake.sink.tidy()) == {Leftover.BRANCH: 0}
    life.audit(lake, at_work)
    assert life.publish(lake, at_work) == len(SECOND)
    assert lake.prove().holds


@pytest.mark.parametrize(
    "state",
    [BatchState.PLANNED, BatchState.STAGED, BatchState.AUDITED, BatchState.BLOCKED, BatchState.COMMITTING],
)
def test_branch_of_an_open_attempt_stays_in_every_state_and_for_however_long(
    lake: LakeWarehouse, state: BatchState
) -> None:
    if state is BatchState.PLANNED:
        attempt = lake.ledger.open_attempt(life.store(lake, FIRST).batch_id, "run-1")
        lake.sink.open_staging(attempt, ROW_SCHEMA)
        leave_branch(lake, attempt)
    else:
        attempt = life.stage(lake, life.store(lake, FIRST))
    if state not in (BatchState.PLANNED, BatchState.STAGED):
        life.audit(lake, attempt, life.FAILED if state is BatchState.BLOCKED else life.PASSED)
    if state is BatchState.COMMITTING:
        life.announce(lake, attempt)
    assert lake.ledger.load_batch(attempt.batch.batch_id).state is state
    let_time_pass(lake)
    assert removed(lake.sink.tidy()) == {Leftover.BRANCH: 0}
    assert branches(lake) == {branch_of(attempt)}


def test_branch_of_a_batch_that_was_published_just_now_is_left_to_its_run(lake: LakeWarehouse) -> None:
    """An at-most-once publication commits the rows from the branch after the batch was published."""
    left = leave_branch(lake, life.take_to_published(lake, FIRST))
    lake.sink.tidy()
    assert branches(lake) == {left}
    let_time_pass(lake)
    lake.sink.tidy()
    assert branches(lake) == set()


def test_branch_that_this_ledger_knows_nothing_of_is_named_and_left_alone(lake: LakeWarehouse) -> None:
    """A ledger that was restored from a backup gives numbers a second time, and so does another one."""
    attempt = life.take_to_published(lake, FIRST)
    batch_id, batch = attempt.batch.batch_id, attempt.batch
    elsewhere = replace(attempt, batch=replace(batch, planned_at=batch.planned_at.replace(year=2020)))
    left = {
        leave_branch(lake, elsewhere),
        leave_branch(lake, replace(attempt, batch=replace(batch, batch_id=10**17))),
        leave_branch(lake, replace(attempt, number=7)),
    }
    head = lake.table.metadata.snapshot_by_name("main")
    lake.table.manage_snapshots().create_branch(head.snapshot_id, f"batchledger_b{batch_id}_a8").commit()
    let_time_pass(lake)
    done = lake.sink.tidy()
    table = f"of table lake.{lake.schema}.orders"
    names = (f"b{batch_id}_a1", f"b{10**17}_a1", f"b{batch_id}_a7", f"b{batch_id}_a8")
    assert (set(done.unknown), removed(done)) == ({f"{each} {table}" for each in names}, {Leftover.BRANCH: 0})
    assert branches(lake) == {*left, f"batchledger_b{batch_id}_a8"}


def test_without_spark_the_files_are_left_as_they_are_and_it_is_said(lake: LakeWarehouse) -> None:
    life.take_to_published(lake, FIRST)
    (said,) = lake.sink.tidy().left_out
    assert said.startswith(f"table lake.{lake.schema}.orders is not maintained: its pipeline has no Spark Connect")
    (said,) = lake.sink.tidy(is_dry_run=True).left_out
    assert said.startswith("What Spark would write together and remove in table lake.")


def test_table_that_does_not_exist_yet_has_nothing_to_tidy(lake: LakeWarehouse) -> None:
    done = lake.sink.tidy()
    assert (removed(done), list(done.left_out)) == ({Leftover.BRANCH: 0}, [])
