"""The whole life of a batch on a real broker, a real Spark and a real database, without Airflow."""

import base64
import json
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import replace
from threading import Barrier

import psycopg
import pyarrow as pa
import pytest
from psycopg import sql

from batchledger.books.history import load_batch_history
from batchledger.config.pipeline_file import load_pipeline
from batchledger.ledger.ledger import PostgresLedger
from batchledger.ledger.publication import PostgresPublication
from batchledger.lifecycle import plans, run_batch
from batchledger.lifecycle.decisions import accept
from batchledger.lifecycle.platform import Platform
from batchledger.model.balance import Balance
from batchledger.model.batch import Attempt, Batch, BatchState, CheckResult, Decision, DeliveryMode, Staged
from batchledger.model.checks import ACCEPTED_BY_TARGET, IntegrityCheck
from batchledger.model.errors import (
    BatchBlockedError,
    BatchledgerError,
    ConfigurationError,
    DecisionRefusedError,
    FencedError,
    TargetChangedError,
    UnknownBatchError,
)
from batchledger.model.presence import NO_PATIENCE
from batchledger.ports import Stager
from batchledger.wiring import build_platform, verify_pipeline
from tests.fakes.crash import Interrupt
from tests.support import Workplace, staging


@pytest.mark.always
def test_every_record_is_visible_once_and_the_second_run_has_nothing_to_do(workplace: Workplace) -> None:
    pipeline = workplace.create(partitions=3)
    pipeline.send(1000, partitions=3)
    batch = run_batch.run_once(pipeline.platform(), "first")
    assert batch is not None
    assert batch.state is BatchState.PUBLISHED
    pipeline.assert_exact()
    assert run_batch.run_once(pipeline.platform(), "second") is None
    pipeline.assert_exact()


def test_batches_follow_each_other_without_gap_when_the_limit_cuts_the_backlog(workplace: Workplace) -> None:
    """S42, S131."""
    pipeline = workplace.create(limits={"max_records": 150})
    pipeline.send(400)
    left = []
    while (batch := run_batch.run_once(pipeline.platform(), "catching up")) is not None:
        left.append(batch.lag_left_records)
    assert left == [250, 100, 0]
    pipeline.assert_exact()


def test_rows_carry_their_coordinates_and_the_batch_that_published_them(workplace: Workplace) -> None:
    pipeline = workplace.create()
    pipeline.send(4)
    batch = run_batch.run_once(pipeline.platform(), "run")
    assert batch is not None
    rows = pipeline.query(
        "select message_id, _topic, _partition, _offset, _timestamp is not null, _batch_id from {target} "
        "order by _partition, _offset"
    )
    expected = [
        (pipeline.sent[index], pipeline.name, index % 2, index // 2, True, batch.batch_id) for index in (0, 2, 1, 3)
    ]
    assert rows == expected


@pytest.mark.always
def test_poison_records_are_quarantined_whole_while_the_balance_closes(workplace: Workplace) -> None:
    """S46, S117, S119."""
    pipeline = workplace.create(quarantine={"max_share": 1})
    pipeline.send(10)
    poison = {
        b"not json": "not exactly one JSON object",
        b'{"number": "seven"}': "number (int) cannot hold a string",
        b'{"number": 1}{"number": 2}': "not exactly one JSON object",
        b"": "not exactly one JSON object",
        b'{"message_id": "\xff"}': "not valid UTF-8",
        b'{"message_id": "a\\u0000b"}': "U+0000",
        None: "no value",
    }
    headers = [("trace", b"\x00\xff"), ("trace", b"2")]
    pipeline.send_raw([(1, value) for value in poison], key=b"a key", headers=headers)
    pipeline.send_raw([(1, b"no key and no headers")])
    batch = run_batch.run_once(pipeline.platform(), "run")
    assert batch is not None
    *found, plain = pipeline.query(
        'select topic, partition, "offset", key, value, headers, error from batchledger.quarantine '
        'where batch_id = %s order by "offset"',
        batch.batch_id,
    )
    encoded = [{"key": name, "value": base64.b64encode(value).decode()} for name, value in headers]
    for offset, (row, (value, error)) in enumerate(zip(found, poison.items(), strict=True), start=5):
        assert row[:6] == (pipeline.name, 1, offset, b"a key", value, encoded)
        assert error in row[6]
    assert plain[:6] == (pipeline.name, 1, 12, None, b"no key and no headers", [])
    balance = load_batch_history(workplace.dsn, batch.batch_id).ranges
    assert [(each.accepted, each.quarantined, each.unexplained) for each in balance] == [(5, 0, 0), (5, 8, 0)]
    pipeline.assert_exact()


def test_every_scalar_type_arrives_unchanged(workplace: Workplace) -> None:
    columns = {
        "a string": "é\n", "b boolean": True, "c tinyint": -128, "d smallint": 32767, "e int": -1, "f bigint": 2**62,
        "g float": 0.5, "h double": 1e300, "i date": "2026-11-21", "j timestamp": "2026-11-21T10:00:00.123456+02:00",
        "k decimal(10,2)": 12345678.91,
    }  # fmt: skip
    pipeline = workplace.create(source={"schema": ", ".join(columns)})
    record = {name.split()[0]: value for name, value in columns.items()}
    pipeline.send_raw([(0, json.dumps(record).encode()), (0, b"{}")])
    run_batch.run_once(pipeline.platform(), "run")
    rows = pipeline.query(
        "select a, b, c, d, e, f, g, h, i::text, (j at time zone 'UTC')::text, k::text from {target} order by _offset"
    )
    instant = "2026-11-21 08:00:00.123456"
    assert rows[0] == ("é\n", True, -128, 32767, -1, 2**62, 0.5, 1e300, "2026-11-21", instant, "12345678.91")
    assert rows[1] == (None,) * 11


@pytest.mark.always
def test_transform_may_drop_records_and_they_are_counted(workplace: Workplace) -> None:
    pipeline = workplace.create(transform="tests.transforms:keep_even")
    pipeline.send(20)
    pipeline.send_raw([(0, b"broken")])
    batch = run_batch.run_once(pipeline.platform(), "run")
    assert batch is not None
    balance = load_batch_history(workplace.dsn, batch.batch_id).ranges
    assert sum(each.filtered or 0 for each in balance) == 10
    assert sum(each.quarantined or 0 for each in balance) == 1
    assert pipeline.query("select count(*), min(mod(number, 2)), max(doubled - 2 * number) from {target}") == [
        (10, 0, 0)
    ]


def test_transform_that_loses_provenance_is_refused(workplace: Workplace) -> None:
    pipeline = workplace.create(transform="tests.transforms:forget_offsets")
    pipeline.send(2)
    with pytest.raises(BatchledgerError, match="dropped the provenance columns _offset"):
        run_batch.run_once(pipeline.platform(), "run")
    assert pipeline.count_target_rows() == 0


class PlantDuplicate:
    """A stager that plants a row twice in the finished staging, as a broken writer would."""

    def __init__(self, platform: Platform, dsn: str) -> None:
        self._stager: Stager = platform.make_stager()
        self._dsn = dsn

    def stage(self, attempt: Attempt) -> Staged:
        """Stage, then copy one row."""
        staged = self._stager.stage(attempt)
        table = sql.Identifier("batchledger_staging", f"b{attempt.batch.batch_id}_a{attempt.number}_rows")
        with psycopg.connect(self._dsn) as connection:
            connection.execute(
                sql.SQL("insert into {0} select * from {0} where _partition = 1 and _offset = 3").format(table)
            )
        return staged


def test_duplicate_planted_in_staging_is_stopped_by_the_audit(workplace: Workplace) -> None:
    pipeline = workplace.create()
    pipeline.send(10)
    good = pipeline.platform()
    faulty = replace(staging(good), make_stager=lambda: PlantDuplicate(good, workplace.dsn))
    with pytest.raises(BatchBlockedError, match=rf"already: 1 .*{pipeline.name}\[1\]@3") as told:
        run_batch.run_once(faulty, "faulty")
    found = {IntegrityCheck.NO_DUPLICATE_OFFSETS, IntegrityCheck.BALANCE_CLOSES, IntegrityCheck.STAGED_AS_REPORTED}
    assert set(told.value.failed) == found
    blocked = good.ledger.find_open_batch(pipeline.name)
    assert blocked is not None
    assert blocked.state is BatchState.BLOCKED
    assert pipeline.count_target_rows() == 0
    assert [position.next_offset for position in good.ledger.load_positions(pipeline.name)] == [0, 0]
    with pytest.raises(BatchBlockedError) as again:
        run_batch.run_once(good, "the next run is told why")
    assert set(again.value.failed) == found
    run_batch.run_once(good, "again", blocked.batch_id)
    pipeline.assert_exact()


def test_stage_running_twice_at_once_publishes_once(workplace: Workplace) -> None:
    """S43."""
    pipeline = workplace.create()
    pipeline.send(500)
    platform = pipeline.platform()
    batch = plans.plan(platform, "plan")
    assert batch is not None
    start = Barrier(2)

    def attempt(run: str) -> str:
        start.wait()
        try:
            run_batch.run_once(replace(pipeline.platform(), patience=NO_PATIENCE), run, batch.batch_id)
        except FencedError as error:
            return str(error)
        return "published"

    with ThreadPoolExecutor(2) as pool:
        outcomes = list(pool.map(attempt, ["run A", "run B"]))
    fenced = [outcome for outcome in outcomes if outcome != "published"]
    assert outcomes.count("published") == 1
    assert len(fenced) == 1
    winner = "run A" if outcomes[0] == "published" else "run B"
    assert "attempt" in fenced[0].lower()
    assert winner in fenced[0]
    pipeline.assert_exact()
    assert pipeline.list_staging() == []


class OvertakenStager:
    """A stager that is overtaken: another run publishes the batch just before this one starts to read."""

    def __init__(self, platform: Platform) -> None:
        self._platform = platform

    def stage(self, attempt: Attempt) -> Staged:
        """Be slow."""
        stager = self._platform.make_stager()
        evidence, sink = self._platform.evidence, self._platform.sink
        evidence.open(attempt)
        sink.open_staging(attempt, pa.schema([("message_id", pa.string())]))
        run_batch.run_once(self._platform, "overtaking", attempt.batch.batch_id)
        return stager.stage(attempt)


def test_attempt_overtaken_while_staging_is_told_by_whom_and_leaves_nothing(workplace: Workplace) -> None:
    """S62."""
    pipeline = workplace.create()
    pipeline.send(10)
    good = staging(replace(pipeline.platform(), patience=NO_PATIENCE))
    slow = replace(good, make_stager=lambda: OvertakenStager(good))
    with pytest.raises(FencedError) as fenced:
        run_batch.run_once(slow, "slow")
    assert fenced.value.run == "overtaking"
    assert fenced.value.attempt == 2
    pipeline.assert_exact()
    assert pipeline.list_staging() == []


class OvertakenLedger(PostgresLedger):
    """A ledger whose caller is always a moment later than a twin of the same Airflow task."""

    def record_audit(
        self,
        attempt: Attempt,
        balances: Sequence[Balance],
        checks: Sequence[CheckResult],
        expected: BatchState = BatchState.STAGED,
    ) -> Batch:
        """Let the twin store its result first."""
        super().record_audit(attempt, balances, checks, expected)
        return super().record_audit(attempt, balances, checks, expected)

    def publication(
        self, attempt: Attempt, expected: BatchState = BatchState.AUDITED
    ) -> AbstractContextManager[PostgresPublication]:
        """Let the twin publish first."""
        config = load_pipeline(attempt.batch.pipeline)
        run_batch.publish(build_platform(config), attempt.batch.batch_id, attempt.run)
        return super().publication(attempt, expected)


def test_s55_twins_of_one_airflow_task_both_end_well_and_publish_once(workplace: Workplace) -> None:
    """S74."""
    pipeline = workplace.create()
    pipeline.send(10)
    late = replace(staging(pipeline.platform()), ledger=OvertakenLedger(workplace.dsn))
    batch = run_batch.run_once(late, "one run")
    assert batch is not None
    assert (batch.state, batch.attempt) == (BatchState.PUBLISHED, 1)
    pipeline.assert_exact()


def test_dropped_and_recreated_target_is_refused(workplace: Workplace) -> None:
    """S111."""
    pipeline = workplace.create()
    pipeline.send(10)
    run_batch.run_once(pipeline.platform(), "first")
    with psycopg.connect(workplace.dsn) as connection:
        connection.execute(f'create table public.copy_of_{pipeline.name} as table "{pipeline.name}_target"')
        connection.execute(f'drop table "{pipeline.name}_target"')
        connection.execute(f'alter table copy_of_{pipeline.name} rename to "{pipeline.name}_target"')
    pipeline.send(10)
    before = pipeline.platform().ledger.list_targets()[pipeline.name]
    assert before is not None
    with pytest.raises(TargetChangedError, match="is another one") as refused:
        run_batch.run_once(pipeline.platform(), "second")
    assert (refused.value.pipeline, refused.value.expected) == (pipeline.name, before.identity)
    assert refused.value.found not in (None, before.identity)
    assert pipeline.count_target_rows() == 10


def test_s111_target_that_is_dropped_in_the_middle_of_a_batch_is_refused_and_no_offset_moves(
    workplace: Workplace,
) -> None:
    pipeline = workplace.create()
    pipeline.send(10)
    run_batch.run_once(pipeline.platform(), "first")
    before = pipeline.platform().ledger.load_positions(pipeline.name)
    pipeline.send(10)

    def drop() -> None:
        with psycopg.connect(workplace.dsn) as connection:
            connection.execute(f'drop table "{pipeline.name}_target"')

    with pytest.raises(BatchBlockedError, match="was dropped or renamed"):
        run_batch.run_once(staging(pipeline.platform(crash=Interrupt("audited", drop))), "second")
    assert pipeline.query("select to_regclass(%s)", f"{pipeline.name}_target") == [(None,)]
    assert pipeline.platform().ledger.load_positions(pipeline.name) == before


def test_s122_target_that_was_widened_takes_the_next_rows(workplace: Workplace) -> None:
    """A column more, a larger type; a table that is missing is created by the first publication."""
    pipeline = workplace.create()
    pipeline.send(10)
    run_batch.run_once(pipeline.platform(), "first")
    with psycopg.connect(workplace.dsn) as connection:
        connection.execute(f"alter table \"{pipeline.name}_target\" add column note text default 'none'")
        connection.execute(f'alter table "{pipeline.name}_target" alter column number type bigint')
    pipeline.send(10)
    run_batch.run_once(pipeline.platform(), "second")
    assert pipeline.query("select distinct note, pg_typeof(number)::text from {target}") == [("none", "bigint")]
    pipeline.assert_exact()


def test_target_that_cannot_take_the_rows_is_refused_before_anything_is_read(workplace: Workplace) -> None:
    pipeline = workplace.create()
    pipeline.send(10)
    with psycopg.connect(workplace.dsn) as connection:
        connection.execute(f'create table public."{pipeline.name}_target" (message_id text, number boolean)')
    with pytest.raises(TargetChangedError, match=r"(?s)lacks amount, _topic.*sink\.evolve: add"):
        run_batch.run_once(pipeline.platform(), "run")
    assert pipeline.count_target_rows() == 0


@pytest.mark.parametrize("delivery", [DeliveryMode.EXACTLY_ONCE, DeliveryMode.AT_MOST_ONCE])
def test_s116_target_that_rejects_a_row_blocks_the_batch_until_a_person_has_changed_it(
    workplace: Workplace, delivery: DeliveryMode
) -> None:
    pipeline = workplace.create(delivery=delivery.value)
    pipeline.send(10)
    run_batch.run_once(pipeline.platform(), "first")
    with psycopg.connect(workplace.dsn) as connection:
        connection.execute(f'alter table "{pipeline.name}_target" add constraint numbered check (number is not null)')
    pipeline.send_raw([(0, b"{}")])
    with pytest.raises(BatchBlockedError, match=r"table .* refuses the rows") as told:
        run_batch.run_once(pipeline.platform(), "second")
    assert pipeline.count_target_rows() == 10
    with pytest.raises(BatchBlockedError) as refused:
        run_batch.run_once(pipeline.platform(), "third")
    assert told.value.failed == refused.value.failed == (ACCEPTED_BY_TARGET,)
    with psycopg.connect(workplace.dsn) as connection:
        connection.execute(f'alter table "{pipeline.name}_target" drop constraint numbered')
    run_batch.run_once(pipeline.platform(), "by a person", refused.value.batch_id)
    assert pipeline.count_target_rows() == 11
    assert verify_pipeline(pipeline.config).holds


@pytest.mark.always
@pytest.mark.parametrize("into", ["table", "topic"])
def test_row_that_staging_itself_refuses_blocks_the_batch_and_is_not_read_again(
    workplace: Workplace, into: str
) -> None:
    """S116. The task in Spark that meets it says so, and all the tries of it would meet it again."""
    pipeline = workplace.create(into=into, transform="tests.transforms:with_a_nul")
    pipeline.send(10)
    for run in ("first", "second"):
        with pytest.raises(
            BatchBlockedError, match=r"(?s)staging table .* a row.*The first is .*\]@\d+ \(message_id: invalid"
        ) as blocked:
            run_batch.run_once(pipeline.platform(), run)
        assert blocked.value.failed == (ACCEPTED_BY_TARGET,)
    (attempt,) = pipeline.query(
        "select number, outcome, error from batchledger.attempt join batchledger.batch using (batch_id) "
        "where pipeline = %s",
        pipeline.name,
    )
    assert attempt == (1, "blocked", None)
    assert pipeline.list_staging() == []
    pipeline.path.write_text(pipeline.path.read_text().replace("with_a_nul", "keep_all"))
    (batch_id,) = pipeline.query("select batch_id from batchledger.batch where pipeline = %s", pipeline.name)[0]
    run_batch.run_once(pipeline.platform(), "by a person", batch_id)
    pipeline.assert_exact()


def test_row_that_an_index_of_the_target_does_not_take_blocks_the_batch(workplace: Workplace) -> None:
    """S116. PostgreSQL's class 54, which its driver has among the errors of operation."""
    pipeline = workplace.create()
    pipeline.send(10)
    run_batch.run_once(pipeline.platform(), "first")
    with psycopg.connect(workplace.dsn) as connection:
        connection.execute(f'create index on "{pipeline.name}_target" (message_id)')
    pipeline.send_raw([(0, json.dumps({"message_id": os.urandom(6_000).hex()}).encode())])
    for run in ("second", "third"):
        with pytest.raises(BatchBlockedError, match=r"(?s)refuses the rows .*: index row") as blocked:
            run_batch.run_once(pipeline.platform(), run)
        assert blocked.value.failed == (ACCEPTED_BY_TARGET,)
    assert pipeline.count_target_rows() == 10


def test_batch_that_the_table_refuses_is_accepted_once_it_was_altered_and_not_before(workplace: Workplace) -> None:
    pipeline = workplace.create(dedupe={"key": ["message_id"], "remember": "30d"})
    pipeline.send(10)
    run_batch.run_once(pipeline.platform(), "first")
    with psycopg.connect(workplace.dsn) as connection:
        connection.execute(f'alter table "{pipeline.name}_target" add constraint small check (number < 5) not valid')
    pipeline.send(10)
    with pytest.raises(BatchBlockedError, match="the target refuses them") as refused:
        run_batch.run_once(pipeline.platform(), "second")
    batch_id, platform = refused.value.batch_id, pipeline.platform()
    with pytest.raises(DecisionRefusedError, match=r"(?s)cannot be accepted: .* violates.*They are: .*\]@\d") as kept:
        accept(platform, batch_id, Decision("ana@host", "the table was altered"))
    assert kept.value.batch_id == batch_id
    assert f"batchledger run {pipeline.name}" in str(kept.value)
    assert platform.decisions.load_decisions(batch_id) == []
    assert platform.ledger.load_batch(batch_id).state is BatchState.BLOCKED
    with psycopg.connect(workplace.dsn) as connection:
        connection.execute(f'alter table "{pipeline.name}_target" drop constraint small')
    accept(platform, batch_id, Decision("ana@host", "the table was altered"))
    pipeline.assert_exact()


def test_batch_of_another_pipeline_is_refused(workplace: Workplace) -> None:
    one, other = workplace.create(), workplace.create()
    one.send(10)
    batch = plans.plan(one.platform(), "plan")
    assert batch is not None
    with pytest.raises(UnknownBatchError) as refused:
        run_batch.run_once(other.platform(), "run", batch.batch_id)
    assert (refused.value.batch_id, refused.value.pipeline) == (batch.batch_id, other.name)
    run_batch.run_once(one.platform(), "run")
    one.assert_exact()


def test_value_that_a_transform_cannot_cast_blocks_the_batch_and_is_quoted_nowhere(workplace: Workplace) -> None:
    """All the tries of it would meet the same value."""
    pipeline = workplace.create(transform="tests.transforms:as_number")
    pipeline.send(10)
    with pytest.raises(BatchBlockedError, match="a value cannot be cast") as told:
        run_batch.run_once(pipeline.platform(), "run")
    assert told.value.failed == (ACCEPTED_BY_TARGET,)
    assert f"{pipeline.name}-" not in str(told.value), "the beginning of every value"
    pipeline.path.write_text(pipeline.path.read_text().replace("as_number", "keep_all"))
    run_batch.run_once(pipeline.platform(), "by a person", told.value.batch_id)
    pipeline.assert_exact()


def test_limit_that_a_worker_meets_is_not_tried_again(workplace: Workplace) -> None:
    """Spark passes on the text of the error; a lost connection would be a StagingError, which Airflow tries again."""
    pipeline = workplace.create(transform="tests.transforms:at_a_limit")
    pipeline.send(10)
    with pytest.raises(ConfigurationError, match=r"(?s)write a row.*canceling statement") as told:
        run_batch.run_once(pipeline.platform(), "run")
    assert not told.value.retryable
    assert pipeline.count_target_rows() == 0


def test_transform_that_leaves_records_unread_is_refused_where_they_would_pass_for_holes(workplace: Workplace) -> None:
    """Spark does not even start to read for a condition that can never hold."""
    pipeline = workplace.create(transform="tests.transforms:nothing", source={"holes": "transactional"})
    pipeline.send(20)
    with pytest.raises(ConfigurationError, match="was not read to its end, but 0 of 1 parts"):
        run_batch.run_once(pipeline.platform(), "run")
    assert pipeline.count_target_rows() == 0


def test_timestamps_beyond_what_clients_know_are_quarantined(workplace: Workplace) -> None:
    pipeline = workplace.create(source={"schema": "moment timestamp, day date"})
    values = [b'{"moment": "-9999-01-01T00:00:00Z"}', b'{"day": "+12345-01-01"}', b'{"moment": "2026-11-21T10:00:00"}']
    pipeline.send_raw([(0, value) for value in values])
    run_batch.run_once(pipeline.platform(), "run")
    errors = pipeline.query("select error from batchledger.quarantine where pipeline = %s", pipeline.name)
    assert len(errors) == 2
    assert pipeline.query("select (moment at time zone 'UTC')::text from {target}") == [("2026-11-21 10:00:00",)]


def test_table_of_another_pipeline_is_refused(workplace: Workplace) -> None:
    owner = workplace.create()
    owner.send(10)
    run_batch.run_once(owner.platform(), "run")
    intruder = workplace.create(sink={"table": f"{owner.name}_target"})
    intruder.send(10)
    with pytest.raises(TargetChangedError) as refused:
        run_batch.run_once(intruder.platform(), "run")
    assert (refused.value.pipeline, refused.value.owner) == (intruder.name, owner.name)
    assert intruder.list_staging() == []
    owner.assert_exact()
