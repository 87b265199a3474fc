"""The audit on a real broker and a real PostgreSQL: each fault is planted behind the ledger's back, found and named.

Every test begins with the clean twin: the same history, of which every check passes. Each has a database of its own, so
that constraints which would refuse the fault can be dropped.
"""

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest
import yaml
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from psycopg import sql
from psycopg.conninfo import make_conninfo

from batchledger.config.pipeline_file import PipelineConfig, read_pipeline_file
from batchledger.interfaces.upkeep import audit_pipeline
from batchledger.ledger.audits import load_newest_audit
from batchledger.ledger.migrate import migrate
from batchledger.lifecycle import plans
from batchledger.local.samples.admin import KEEP_FOREVER
from batchledger.local.stack.defaults import LEDGER_USER
from batchledger.local.stack.machine import HOST
from batchledger.model.batch import Attempt, Decision
from batchledger.model.checks import Outcome
from batchledger.model.findings import IncidentKind, LedgerCheck
from batchledger.model.offsets import OffsetRange, TopicPartition
from batchledger.monitoring.ledger_audit import LedgerAudit
from batchledger.wiring import build_platform
from tests.conftest import SERVICES, Kafka, as_superuser
from tests.contract import life
from tests.contract.warehouses import PostgresWarehouse
from tests.support import create_topic, delete_records, delete_topic

PER_PARTITION = 10
HOUR = timedelta(hours=1)


@dataclass(frozen=True)
class Audited:
    """A pipeline with a topic of two partitions and a database of its own."""

    kafka: Kafka
    warehouse: PostgresWarehouse
    path: Path

    @property
    def name(self) -> str:
        return self.warehouse.pipeline

    @property
    def config(self) -> PipelineConfig:
        return read_pipeline_file(self.path)

    @property
    def first(self) -> TopicPartition:
        return TopicPartition(self.name, 0)

    def send(self, at: datetime | None = None) -> None:
        """Write records to each partition."""
        producer = Producer(self.kafka.options)
        timestamp = int((at.timestamp() if at else time.time()) * 1000)
        for index in range(2 * PER_PARTITION):
            producer.produce(self.name, value=b"{}", partition=index % 2, timestamp=timestamp)
        assert producer.flush(30) == 0

    def stage(self, run: str, poison: int | None = None) -> Attempt:
        """Plan what is unread and stage it."""
        batch = plans.plan(build_platform(self.config), run)
        assert batch is not None
        return life.stage(self.warehouse, batch, run, poison=[(self.first, poison)] if poison else [])

    def publish(self, run: str, poison: int | None = None) -> Attempt:
        """Write records and publish them."""
        self.send()
        attempt = self.stage(run, poison)
        life.audit(self.warehouse, attempt)
        life.publish(self.warehouse, attempt)
        self.warehouse.sink.drop_staging(attempt)
        self.warehouse.evidence.drop(attempt)
        return attempt

    def execute(self, statement: str, *parameters: object) -> None:
        """Change something behind the ledger's back; ``{target}`` is the target table."""
        text = statement.replace("{target}", f'"{self.warehouse.schema}".orders').encode()
        with psycopg.connect(self.warehouse.dsn) as connection:
            connection.execute(text, parameters)

    def audit(self, newest: int | None = None) -> LedgerAudit:
        return audit_pipeline(self.config, datetime.now(UTC), newest)


@pytest.fixture
def audited(kafka: Kafka, warehouse_dsn: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Audited]:
    """Two published batches of 20 offsets, the second with a record that was set aside."""
    name = f"t_{uuid4().hex[:12]}"
    connection = {
        "conn_type": "postgres",
        "host": HOST,
        "port": SERVICES.ports.postgres,
        "login": LEDGER_USER,
        "password": SERVICES.credentials.ledger_password,
        "schema": name,
    }
    monkeypatch.setenv(f"AIRFLOW_CONN_{name.upper()}", json.dumps(connection))
    create_topic(kafka.options, name, 2, KEEP_FOREVER)
    with psycopg.connect(as_superuser(warehouse_dsn), autocommit=True) as admin:
        admin.execute(sql.SQL("create database {} owner {}").format(*map(sql.Identifier, (name, LEDGER_USER))))
        warehouse = PostgresWarehouse(make_conninfo(warehouse_dsn, dbname=name), pipeline=name)
        migrate(warehouse.dsn)
        content = {
            "name": name,
            "source": {"topics": [name], "schema": "message_id string"},
            "sink": {"connection": name, "table": f"{warehouse.schema}.orders"},
            "deadlines": {"lag": "10m", "blocked": "1h"},
        }
        path = tmp_path / f"{name}.yaml"
        path.write_text(yaml.safe_dump(content))
        pipeline = Audited(kafka, warehouse, path)
        pipeline.publish("first")
        pipeline.publish("second", poison=PER_PARTITION + 3)
        yield pipeline
        admin.execute(sql.SQL("drop database {} with (force)").format(sql.Identifier(name)))


def position_behind_what_was_published(pipeline: Audited) -> None:
    pipeline.execute("update batchledger.position set next_offset = next_offset - 5 where partition = 0")


def range_published_twice(pipeline: Audited) -> None:
    pipeline.execute("alter table batchledger.batch_range drop constraint batch_range_disjoint")
    pipeline.execute(
        "insert into batchledger.batch_range (batch_id, pipeline, topic, partition, offsets, published_live, accepted, "
        "duplicates, quarantined, tombstones, filtered, holes, accepted_loss) "
        "select 2, pipeline, topic, partition, offsets, true, accepted, 0, 0, 0, 0, 0, 0 "
        "from batchledger.batch_range where batch_id = 1 and partition = 0"
    )


def position_moved_without_rows(pipeline: Audited) -> None:
    pipeline.execute("update batchledger.batch set rows_published_at = null where batch_id = 2")
    pipeline.execute("delete from {target} where _batch_id = 2")


def balance_that_does_not_close(pipeline: Audited) -> None:
    pipeline.execute("alter table batchledger.batch_range drop constraint batch_range_balanced")
    pipeline.execute("update batchledger.batch_range set filtered = 1 where batch_id = 2 and partition = 1")


def offsets_that_nobody_holds(pipeline: Audited) -> None:
    pipeline.execute("update batchledger.batch_range set held = '{}' where batch_id = 2 and partition = 1")
    pipeline.execute("delete from {target} where _batch_id = 2 and _partition = 1")


def row_that_is_missing(pipeline: Audited) -> None:
    pipeline.execute("delete from {target} where (_partition, _offset) = (0, 3)")


def row_that_is_there_twice(pipeline: Audited) -> None:
    pipeline.execute("insert into {target} select * from {target} where (_partition, _offset) = (0, 3)")


def row_of_no_batch(pipeline: Audited) -> None:
    pipeline.execute("insert into {target} (_topic, _partition, _offset, _batch_id) values ('else', 7, 7, 999)")


def quarantined_record_that_is_missing(pipeline: Audited) -> None:
    pipeline.execute("delete from batchledger.quarantine")


def duplicate_that_nobody_counted(pipeline: Audited) -> None:
    pipeline.execute(
        'insert into batchledger.duplicate (batch_id, pipeline, topic, partition, "offset", first_topic, '
        "first_partition, first_offset) values (2, %s, %s, 0, 12, %s, 0, 1)",
        *[pipeline.name] * 3,
    )


def decision_that_was_changed(pipeline: Audited) -> None:
    pipeline.execute(
        "insert into batchledger.decision (pipeline, kind, decided_by, reason) values (%s, 'resume', 'ana', 'why')",
        pipeline.name,
    )
    pipeline.execute("alter table batchledger.decision disable trigger user")
    pipeline.execute("update batchledger.decision set decided_by = 'ben'")


def attempt_that_nobody_works_on(pipeline: Audited) -> None:
    pipeline.send()
    pipeline.stage("killed")
    pipeline.execute("update batchledger.batch set planned_at = now() - interval '2 h' where state = 'staged'")
    pipeline.execute(
        "update batchledger.attempt set opened_at = now() - interval '2 h', staged_at = now() - interval '2 h' "
        "where batch_id = 3"
    )


def staging_that_is_left_behind(pipeline: Audited) -> None:
    pipeline.execute("create unlogged table batchledger_staging.b1_a1_rows (a int)")
    pipeline.execute("update batchledger.batch set published_at = now() - interval '27 h' where batch_id = 1")


def batch_that_is_blocked_for_long(pipeline: Audited) -> None:
    pipeline.send()
    life.audit(pipeline.warehouse, pipeline.stage("refused"), life.FAILED)
    pipeline.execute("update batchledger.attempt set ended_at = now() - interval '2 h' where batch_id = 3")


def records_that_nobody_reads(pipeline: Audited) -> None:
    pipeline.send(at=datetime.now(UTC) - HOUR)


def records_that_are_lost(pipeline: Audited) -> None:
    pipeline.send()
    delete_records(pipeline.kafka.options, pipeline.name, 0, before_offset=2 * PER_PARTITION + 2)


def topic_that_is_another_one(pipeline: Audited) -> None:
    delete_topic(pipeline.kafka.options, pipeline.name)
    create_topic(pipeline.kafka.options, pipeline.name, 2, KEEP_FOREVER)


FAULTS: dict[Callable[[Audited], None], set[LedgerCheck]] = {
    position_behind_what_was_published: {LedgerCheck.RANGES_MEET},
    range_published_twice: {LedgerCheck.RANGES_DISJOINT},
    position_moved_without_rows: {LedgerCheck.ROWS_WRITTEN},
    balance_that_does_not_close: {LedgerCheck.BALANCES_CLOSE},
    offsets_that_nobody_holds: {LedgerCheck.HELD_ONCE},
    row_that_is_missing: {LedgerCheck.TARGET},
    row_that_is_there_twice: {LedgerCheck.TARGET},
    row_of_no_batch: {LedgerCheck.TARGET},
    quarantined_record_that_is_missing: {LedgerCheck.QUARANTINE},
    duplicate_that_nobody_counted: {LedgerCheck.DUPLICATES},
    decision_that_was_changed: {LedgerCheck.DECISIONS},
    attempt_that_nobody_works_on: {LedgerCheck.STALE_ATTEMPT},
    staging_that_is_left_behind: {LedgerCheck.STAGING},
    batch_that_is_blocked_for_long: {LedgerCheck.BLOCKED},
    records_that_nobody_reads: {LedgerCheck.LAG},
    records_that_are_lost: {LedgerCheck.LOSS},
    topic_that_is_another_one: {LedgerCheck.SOURCE},
}


def not_passed(audit: LedgerAudit) -> set[str]:
    return {each.name for each in audit.failed}


@pytest.mark.parametrize("plant", FAULTS, ids=lambda plant: plant.__name__)
def test_planted_fault_fails_its_check_and_no_other(audited: Audited, plant: Callable[[Audited], None]) -> None:
    clean = audited.audit()
    assert (not_passed(clean), clean.exit_code) == (set(), 0)
    assert [each.kind for each in clean.findings.found] == [IncidentKind.QUARANTINED]
    plant(audited)
    found = audited.audit()
    assert not_passed(found) == FAULTS[plant]
    assert {each.outcome for each in found.failed} == {Outcome.FAILED}
    assert {check.row.kind for check in FAULTS[plant]} <= {each.kind for each in found.findings.found}
    assert all(each.lines and each.command for each in found.findings.found)


def test_what_was_found_is_stored_with_the_judgement_of_great_expectations(audited: Audited) -> None:
    row_that_is_missing(audited)
    found = audited.audit()
    stored = load_newest_audit(audited.warehouse.dsn, audited.name)
    assert stored is not None
    assert stored.audited_at == found.audited_at
    assert sorted(stored.checks, key=lambda each: each.name) == sorted(found.checks, key=lambda each: each.name)
    (wrong,) = [each for each in stored.checks if each.outcome is Outcome.FAILED]
    assert (
        wrong.detail == f"batch 1, {OffsetRange(audited.first, 0, 10)}: the ledger accepted 10 rows, the target holds 9"
    )
    assert wrong.validation is not None
    config = wrong.validation["expectation_config"]
    assert (config["type"], config["meta"]) == (
        "expect_facts_within_limit", {"check": "target_holds_what_was_accepted"}
    )  # fmt: skip


def test_window_passes_by_what_is_older_says_so_and_ends_no_incident_of_it(audited: Audited) -> None:
    row_that_is_missing(audited)
    windowed, whole = audited.audit(newest=1), audited.audit(newest=0)
    assert (not_passed(windowed), not_passed(whole)) == (set(), {LedgerCheck.TARGET})
    assert "were not looked at" in windowed.coverage.describe_unproved()[0]
    assert IncidentKind.LEDGER_FINDING in whole.findings.looked_for - windowed.findings.looked_for
    audited.execute("delete from {target} where (_partition, _offset) = (0, 15)")
    assert not_passed(audited.audit(newest=1)) == {LedgerCheck.TARGET}


def test_row_of_an_older_batch_in_offsets_that_the_window_holds_is_found(audited: Audited) -> None:
    audited.execute(
        "insert into {target} select _topic, _partition, _offset, _timestamp, message_id, 1 from {target} "
        "where (_partition, _offset) = (0, 15)"
    )
    assert not_passed(audited.audit(newest=1)) == {LedgerCheck.TARGET}


def test_attempt_whose_tasks_still_write_is_not_stale(audited: Audited) -> None:
    attempt_that_nobody_works_on(audited)
    with psycopg.connect(audited.warehouse.dsn) as writing:
        writing.execute("lock table batchledger_staging.b3_a1_rows in row exclusive mode")
        assert not_passed(audited.audit()) == set()
    assert not_passed(audited.audit()) == {LedgerCheck.STALE_ATTEMPT}


def test_transaction_that_holds_records_back_for_long_is_stuck(audited: Audited) -> None:
    producer = Producer({**audited.kafka.options, "transactional.id": uuid4().hex, "transaction.timeout.ms": 600_000})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(audited.name, value=b"{}", partition=0)
    assert producer.flush(30) == 0
    assert plans.plan(build_platform(audited.config), "look") is None
    assert not_passed(audited.audit()) == set()
    audited.execute("update batchledger.position set held_back_since = now() - interval '1 h' where partition = 0")
    found = audited.audit()
    assert not_passed(found) == {LedgerCheck.STUCK}
    assert f"--partition 0 --start-offset {2 * PER_PARTITION}" in found.failed[0].detail
    producer.abort_transaction(30)


def test_unread_records_that_expire_soon_are_found_and_fresh_ones_are_not(audited: Audited) -> None:
    entry = ConfigEntry("retention.ms", str(4 * 3_600_000), incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, audited.name, incremental_configs=[entry])
    admin = AdminClient(audited.kafka.options)
    admin.incremental_alter_configs([resource])[resource].result(30)
    audited.send()
    assert not_passed(audited.audit()) == set()
    life_left = audited.stage("fresh")
    life.audit(audited.warehouse, life_left)
    life.publish(audited.warehouse, life_left)
    audited.send(at=datetime.now(UTC) - 3.5 * HOUR)
    found = audited.audit()
    assert not_passed(found) == {LedgerCheck.EXPIRY, LedgerCheck.LAG}
    (expiry,) = [each for each in found.failed if each.name == LedgerCheck.EXPIRY]
    assert "the oldest unread record may expire in 29 min" in expiry.detail


def test_audit_of_a_retired_pipeline_says_nothing_of_a_target_that_it_gave_up(audited: Audited) -> None:
    audited.execute("delete from {target}")
    lost = {each.name for each in audited.audit(newest=1).failed}
    assert LedgerCheck.TARGET in lost
    audited.warehouse.decisions.retire(audited.name, Decision("ana@host", "the shop has closed"), free_target=True)
    for newest in (1, 0):
        found = audited.audit(newest)
        assert (found.failed, found.findings.found) == ((), ())
        told = {each.name for each in found.checks}
        assert LedgerCheck.TARGET not in told
        assert LedgerCheck.SOURCE not in told
        assert len(told) > 5
