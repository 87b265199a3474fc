"""What people see of a batch while a real Spark reads it and a real PostgreSQL takes its rows."""

import json
import os
import pty
import re
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import psycopg
import pyarrow as pa
from psycopg import sql

from batchledger.lifecycle import plans, run_batch
from batchledger.lifecycle.following import Follower, Tell
from batchledger.lifecycle.platform import Platform
from batchledger.model.batch import Attempt, BatchState
from batchledger.model.progress import Progress, Reading
from batchledger.planning.shares import OFFSETS_WORTH_A_RANGE
from batchledger.sinks.staging.tables import PostgresStagingWriter, open_table
from batchledger.sinks.table.sink import PostgresSink
from tests.forked import start_command
from tests.support import TestPipeline, Workplace, change_stager, staging, wait_until

HELD_BACK = 7_281_940_113
"""The advisory lock that the COPY of a held row waits for."""


class HoldingSink(PostgresSink):
    """Lets the COPY that comes to record 200 wait as long as a test holds the lock."""

    def open_staging(self, attempt: Attempt, schema: pa.Schema) -> PostgresStagingWriter:
        writer = super().open_staging(attempt, schema)
        with psycopg.connect(self.dsn) as connection:
            connection.execute(
                "create or replace function batchledger_staging.wait_until_released() returns trigger language plpgsql "
                f"as 'begin perform pg_advisory_xact_lock({HELD_BACK}); return new; end'"
            )
            connection.execute(
                sql.SQL(
                    "create trigger hold before insert on {} for each row when (new.number = 200) "
                    "execute function batchledger_staging.wait_until_released()"
                ).format(open_table(attempt))
            )
        return writer


@contextmanager
def holding(pipeline: TestPipeline) -> Iterator[psycopg.Connection[tuple[object, ...]]]:
    """Hold the lock for the block, or until the connection is closed."""
    with psycopg.connect(pipeline.workplace.dsn, autocommit=True) as connection:
        connection.execute("select pg_advisory_lock(%s)", [HELD_BACK])
        yield connection
    with psycopg.connect(pipeline.workplace.dsn) as connection:
        connection.execute("drop function batchledger_staging.wait_until_released cascade")


@dataclass
class Told:
    """A display that notes what it gets."""

    progress: list[Progress] = field(default_factory=list)

    @contextmanager
    def display(self, attempt: Attempt) -> Iterator[Tell]:
        yield self.progress.append


def hold_back(platform: Platform, told: Told) -> Platform:
    """The same platform, with a COPY that can be held back, and followed closely."""
    sink = platform.sink
    assert isinstance(sink, PostgresSink)
    held = change_stager(
        staging(platform), sink=HoldingSink(sink.dsn, sink.table), offsets_in_share=OFFSETS_WORTH_A_RANGE + 300
    )
    return replace(held, follow=Follower(told.display, 0.05).follow)


def test_in_the_middle_of_a_batch_finished_parts_and_running_tasks_add_up_to_what_was_read(
    workplace: Workplace,
) -> None:
    """600 records in two partitions: one is read whole, of the other the 100 records before the held one."""
    pipeline, told = workplace.create(), Told()
    pipeline.send(600)
    platform = hold_back(pipeline.platform(), told)
    with ThreadPoolExecutor(1) as pool, holding(pipeline) as lock:
        done = pool.submit(run_batch.run_once, platform, "run")
        try:
            wait_until(lambda: done.done() or any(each.read_records == 300 + 100 for each in told.progress))
            assert not done.done()
            assert str(told.progress[-1]).startswith("400 of 600 records read (66%), ")
        finally:
            lock.close()
        batch = done.result()
    assert batch is not None
    assert batch.state is BatchState.PUBLISHED
    read = [each.read_records for each in told.progress]
    assert read == sorted(read)
    assert max(read) <= 600
    assert not [each for each in threading.enumerate() if each.name.startswith("follow ")]
    pipeline.assert_exact()


def test_with_a_transform_rows_on_their_way_are_not_taken_for_records(workplace: Workplace) -> None:
    """It drops all records of one partition; of the other, the 100 rows before the held one say nothing of records."""
    pipeline, told = workplace.create(transform="tests.transforms:keep_even"), Told()
    pipeline.send(600)
    platform = hold_back(pipeline.platform(), told)
    with ThreadPoolExecutor(1) as pool, holding(pipeline) as lock:
        done = pool.submit(run_batch.run_once, platform, "run")
        try:
            wait_until(lambda: done.done() or any(each.rows == 100 for each in told.progress))
            assert not done.done()
            assert {each.read_records for each in told.progress} <= {0, 300, 600}
        finally:
            lock.close()
        assert done.result() is not None


def test_following_a_batch_while_the_database_is_asked_in_vain_changes_nothing(workplace: Workplace) -> None:
    """What the follower asks is refused each time; the batch has a database that answers."""
    pipeline, told = workplace.create(), Told()
    pipeline.send(20)
    platform = pipeline.platform()
    nowhere = replace(platform.evidence, dsn="host=127.0.0.1 port=1 connect_timeout=1")  # type: ignore[type-var]
    looks = Follower(told.display, 0.01)
    batch = plans.plan(platform, "run")
    assert batch is not None
    attempt = Attempt(batch, 1, "run")
    looked = threading.Event()

    def look_in_vain() -> Reading:
        try:
            return Reading(nowhere.count_seen(attempt))
        finally:
            looked.set()

    with looks.follow(attempt, look_in_vain):
        assert looked.wait(60)
        run_batch.take_through(platform, batch.batch_id, "run")
    assert told.progress == []
    pipeline.assert_exact()


def test_the_command_line_shows_a_bar_on_a_terminal_and_prints_its_document_alone(
    workplace: Workplace, tmp_path: Path
) -> None:
    """The transform holds the step up until the test has seen the bar."""
    pipeline = workplace.create(transform="tests.transforms:wait_for_file")
    pipeline.send(600)
    released, out = tmp_path / "released", tmp_path / "out"
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "80", "BATCHLEDGER_TEST_WAITS_FOR": str(released)}
    shown = bytearray()

    def read_terminal() -> None:
        # A terminal that its last process has left is an error to read from.
        try:
            while data := os.read(ours, 4096):
                shown.extend(data)
        except OSError:
            pass

    process = start_command(("run", pipeline.name, "--json"), environment, out, Path(os.ttyname(theirs)))
    reader = threading.Thread(target=read_terminal, daemon=True)
    reader.start()
    try:
        wait_until(lambda: b"% of 600 records" in shown or not process.is_alive())
    finally:
        released.touch()
        process.join(120)
        os.close(theirs)
        reader.join(10)
        os.close(ours)
    assert process.exitcode == 0, shown.decode()
    (published,) = json.loads(out.read_text())
    assert published["state"] == "published"
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown.decode())
    assert "━ 0% of 600 records" in text
    assert "% of 600 records" not in text[text.rindex("has streamed") :]
