"""Every named crash point, killed for real by SIGKILL; afterwards the target is proved record by record."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import psycopg
import pytest
from psycopg import sql

from batchledger.ledger.ledger import PostgresLedger
from batchledger.ledger.publication import PostgresPublication
from batchledger.lifecycle import plans, run_batch
from batchledger.model.batch import Attempt, BatchState, DeliveryMode
from batchledger.model.errors import FencedError, OutcomeUnknownError, StagingLostError
from batchledger.wiring import verify_pipeline
from tests.conftest import ROOT
from tests.fakes.crash import AFTER_COMMIT, BEFORE_PUBLISHING, copies_after_crash, crash_points
from tests.faults.run_and_die import run_until_killed
from tests.support import Workplace, staging

POINTS = {
    "table": {delivery: crash_points(delivery) for delivery in DeliveryMode},
    "staged": {DeliveryMode.EXACTLY_ONCE: crash_points(DeliveryMode.EXACTLY_ONCE)},
    "topic": {delivery: crash_points(delivery, is_foreign=True) for delivery in DeliveryMode},
    "lake": {delivery: crash_points(delivery, is_foreign=True) for delivery in DeliveryMode},
}
# The table of docs/concepts/guarantees.md that says what becomes of a sink. Rows for a table stream, if they are not
# to be staged.
TABLES = {"table": "table", "staged": "table", "topic": "topic or lake", "lake": "topic or lake"}


def is_its_own(into: str, delivery: DeliveryMode, point: str) -> bool:
    """Whether a crash there meets what a mode or a sink does by itself.

    Up to the publication no mode does: nothing reads it before ``delivery.deliver``. If a weaker mode writes to another
    system, the points that it shares with ``exactly_once`` or with a table are played in memory.
    """
    if into == "staged":
        return True
    if point in BEFORE_PUBLISHING:
        # Files of a lake, and the open transaction of a topic, lie outside of the database.
        left = {"lake": ("attempt_opened", "staging_sealed"), "topic": ("staging_sealed", "audited")}
        return delivery is DeliveryMode.EXACTLY_ONCE and (into == "table" or point in left.get(into, ()))
    is_of_the_mode = point in ("between_commits", "sink_committed")
    return into == "table" or delivery is DeliveryMode.EXACTLY_ONCE or is_of_the_mode


CRASHES = [
    (into, delivery, point)
    for into, points_by_mode in POINTS.items()
    for delivery, points in points_by_mode.items()
    for point in points
    if is_its_own(into, delivery, point)
]
# One kill a sink in `make test`: at the moment that matters most to it.
ALWAYS = {
    ("table", DeliveryMode.EXACTLY_ONCE, "before_commit"),
    ("topic", DeliveryMode.EXACTLY_ONCE, "sink_committed"),
    ("lake", DeliveryMode.EXACTLY_ONCE, "sink_committed"),
}
OUTCOME_BY_COPIES = {0: "lost", 1: "once", 2: "twice"}


def read_table(into: str) -> dict[tuple[str, str], str]:
    """What docs/concepts/guarantees.md says a crash leaves: by delivery mode and crash point."""
    text = (ROOT / "docs" / "concepts" / "guarantees.md").read_text()
    (table,) = re.findall(rf"\| {TABLES[into]}, killed at \|.*?\n\n", text, re.DOTALL)
    head, _, *lines = [[cell.strip(" `*") for cell in line.strip("|").split("|")] for line in table.strip().split("\n")]
    return {(mode, line[0]): cell for line in lines for mode, cell in zip(head[1:], line[1:], strict=True)}


@pytest.mark.always
@pytest.mark.parametrize("into", ["table", "topic", "lake"])
def test_table_of_the_readme_has_every_crash_point_of_every_mode(into: str) -> None:
    """And says of each what is found in memory, of those too that no process is killed at."""
    told = {key: outcome for key, outcome in read_table(into).items() if outcome != "—"}
    assert told == {
        (str(delivery), point): OUTCOME_BY_COPIES[copies_after_crash(delivery, point, is_foreign=into != "table")]
        for delivery, points in POINTS[into].items()
        for point in points
    }


@pytest.mark.parametrize(
    ("into", "delivery", "point"),
    [pytest.param(*each, marks=pytest.mark.always if each in ALWAYS else ()) for each in CRASHES],
)
def test_killed_at_every_point_in_every_mode_leaves_what_the_readme_says(
    workplace: Workplace, into: str, delivery: DeliveryMode, point: str
) -> None:
    """S72, S83, S86, S87, S89: SIGKILL; another run takes the stored plan although more records have come (I5).

    What comes after it begins where it ended.
    """
    pipeline = workplace.create(into="table" if into == "staged" else into, delivery=str(delivery))
    pipeline.send(50)
    run_until_killed(pipeline.name, "killed", point, stages=into == "staged")
    platform = pipeline.platform()
    left = platform.ledger.find_open_batch(pipeline.name)
    if delivery is DeliveryMode.EXACTLY_ONCE and left is not None:
        is_early = point == "sink_committed"
        assert pipeline.count_target_rows() == (50 if is_early else 0), "I3: rows without their position"
        assert {each.next_offset for each in platform.ledger.load_positions(pipeline.name)} == {0}
    pipeline.send(30)
    if left is not None:
        taken = run_batch.run_once(platform, "next")
        assert taken is not None
        assert (taken.batch_id, taken.ranges) == (left.batch_id, left.ranges)
    assert [(each.start, each.until) for each in plans.preview(platform).ranges] == [(25, 40), (25, 40)]
    copies = pipeline.count_copies()
    (found,) = {copies[each] for each in pipeline.sent[:50]}
    assert copies.keys() <= set(pipeline.sent[:50])
    assert OUTCOME_BY_COPIES[found] == read_table(into)[delivery, point]
    assert found == copies_after_crash(delivery, point, is_foreign=into != "table")
    assert verify_pipeline(pipeline.config).holds == (found == 1)


@pytest.mark.parametrize("into", POINTS)
@pytest.mark.parametrize("point", AFTER_COMMIT)
def test_killed_after_commit_nothing_is_done_twice(workplace: Workplace, point: str, into: str) -> None:
    """S65: the step is repeated by the same run, as Airflow does; it finds its work done and only cleans up."""
    pipeline = workplace.create(into="table" if into == "staged" else into)
    pipeline.send(50)
    run_until_killed(pipeline.name, "killed", point, stages=into == "staged")
    pipeline.assert_exact()
    platform = pipeline.platform()
    batch_id = pipeline.query("select batch_id from batchledger.batch where pipeline = %s", pipeline.name)[0][0]
    for step in (run_batch.stage, run_batch.audit, run_batch.publish):
        assert step(platform, batch_id, "killed").state is BatchState.PUBLISHED
    with pytest.raises(FencedError, match="Attempt 1 of run killed"):
        run_batch.stage(platform, batch_id, "another run")
    assert run_batch.run_once(platform, "next") is None
    pipeline.assert_exact()
    assert pipeline.list_staging() == []


def test_killed_between_stage_and_publish_the_same_run_goes_on_where_it_was(workplace: Workplace) -> None:
    """S94: Airflow retries the task that died, not the whole run: the staged attempt is still good."""
    pipeline = workplace.create()
    pipeline.send(50)
    run_until_killed(pipeline.name, "killed", "staged", stages=True)
    platform = pipeline.platform()
    left = platform.ledger.find_open_batch(pipeline.name)
    assert left is not None
    run_batch.audit(platform, left.batch_id, "killed")
    published = run_batch.publish(platform, left.batch_id, "killed")
    assert (published.state, published.attempt) == (BatchState.PUBLISHED, 1)
    pipeline.assert_exact()


def test_connection_lost_before_the_commit_leaves_nothing_and_the_retry_publishes(workplace: Workplace) -> None:
    """S54, S66, S96, I9: the server ends the session when all but COMMIT is done; the ledger is asked, and says no."""
    pipeline = workplace.create()
    pipeline.send(50)

    def cut(point: str) -> None:
        if point == "before_commit":
            ended = pipeline.query(
                "select pg_terminate_backend(pid) from pg_stat_activity "
                "where state = 'idle in transaction' and datname = current_database()"
            )
            assert ended == [(True,)]

    with pytest.raises(OutcomeUnknownError) as caught:
        run_batch.run_once(staging(pipeline.platform(crash=cut)), "run")
    assert caught.value.retryable
    assert pipeline.count_target_rows() == 0
    left = pipeline.platform().ledger.find_open_batch(pipeline.name)
    assert left is not None
    run_batch.publish(pipeline.platform(), left.batch_id, "run")
    pipeline.assert_exact()


class LostReplyLedger(PostgresLedger):
    """The real ledger; the answer to its COMMIT gets lost on the way."""

    @contextmanager
    def publication(self, attempt: Attempt, expected: BatchState = BatchState.AUDITED) -> Iterator[PostgresPublication]:
        """Commit, then claim not to know."""
        with super().publication(attempt, expected) as publication:
            yield publication
        raise OutcomeUnknownError("the reply got lost")


def test_lost_reply_to_a_commit_is_resolved_by_batch_id(workplace: Workplace) -> None:
    """S65, S104, I9: the commit happened; the ledger is asked, says yes, and the run goes on as published."""
    pipeline = workplace.create()
    pipeline.send(50)
    good = staging(pipeline.platform())
    batch = run_batch.run_once(replace(good, ledger=LostReplyLedger(workplace.dsn)), "run")
    assert batch is not None
    assert batch.state is BatchState.PUBLISHED
    pipeline.assert_exact()
    assert pipeline.list_staging() == []


def test_staging_emptied_by_a_database_crash_is_found_and_the_next_run_stages_again(workplace: Workplace) -> None:
    """S113: unlogged tables are empty after a crash of PostgreSQL; truncating them has the same effect."""
    for point in ("staged", "audited"):
        pipeline = workplace.create()
        pipeline.send(50)
        run_until_killed(pipeline.name, "killed", point, stages=True)
        (rows,) = [name for name in pipeline.list_staging() if name.endswith("_rows")]
        with psycopg.connect(workplace.dsn) as connection:
            connection.execute(sql.SQL("truncate {}").format(sql.Identifier("batchledger_staging", rows)))
        platform = pipeline.platform()
        left = platform.ledger.find_open_batch(pipeline.name)
        assert left is not None
        step = run_batch.audit if point == "staged" else run_batch.publish
        with pytest.raises(StagingLostError):
            step(platform, left.batch_id, "killed")
        assert pipeline.count_target_rows() == 0
        run_batch.run_once(platform, "next")
        pipeline.assert_exact()
