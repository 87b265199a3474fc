"""From a topic into a topic, with everything that is real: Spark, broker, database."""

import json
import re
import secrets

import psycopg
import pytest
import yaml
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from batchledger.books.history import load_batch_history
from batchledger.lifecycle import plans, run_batch
from batchledger.lifecycle.decisions import accept, rewind
from batchledger.model.batch import BatchState, Decision
from batchledger.model.checks import ACCEPTED_BY_TARGET
from batchledger.model.errors import BatchBlockedError, DecisionRefusedError, StagingLostError, TargetChangedError
from batchledger.planning.live import StartPolicy
from batchledger.planning.replay import Replay
from batchledger.planning.rewind import Rewind
from batchledger.wiring import verify_pipeline
from tests.integration.test_cli import batchledger
from tests.support import Workplace, admin_client, create_topic
from tests.topics import read_messages

ANA = Decision("ana@host", "the readers were told")


@pytest.mark.always
def test_every_record_is_produced_once_and_the_second_run_has_nothing_to_do(workplace: Workplace) -> None:
    pipeline = workplace.create(into="topic", partitions=3, limits={"max_records": 600})
    pipeline.send(1000, partitions=3)
    for run in ("first", "second"):
        batch = run_batch.run_once(pipeline.platform(), run)
        assert batch is not None
        assert batch.state is BatchState.PUBLISHED
    pipeline.assert_exact()
    assert run_batch.run_once(pipeline.platform(), "third") is None
    pipeline.assert_exact()
    assert pipeline.list_staging() == []


def test_record_is_the_row_as_json_its_key_and_where_it_came_from(workplace: Workplace) -> None:
    pipeline = workplace.create(into="topic", partitions=1, sink={"key": ["message_id"]})
    pipeline.send(2, partitions=1)
    batch = run_batch.run_once(pipeline.platform(), "run")
    assert batch is not None
    for offset, message in enumerate(read_messages(workplace.kafka_options, f"{pipeline.name}_target")):
        assert message.key() == pipeline.sent[offset].encode()
        assert json.loads(message.value()) == {
            "message_id": pipeline.sent[offset],
            "number": offset,
            "amount": offset / 4,
        }
        headers = dict(message.headers())
        assert headers.keys() == {"_topic", "_partition", "_offset", "_timestamp", "_batch_id"}
        assert (headers["_topic"], headers["_offset"]) == (pipeline.name.encode(), b"%d" % offset)
        assert headers["_batch_id"] == b"%d" % batch.batch_id


def test_form_of_the_headers_may_change_between_two_batches(workplace: Workplace) -> None:
    pipeline = workplace.create(into="topic", partitions=2, sink={"headers": "packed"})
    pipeline.send(5, partitions=2)
    packed = run_batch.run_once(pipeline.platform(), "packed")
    content = yaml.safe_load(pipeline.path.read_text())
    content["sink"]["headers"] = "separate"
    pipeline.path.write_text(yaml.safe_dump(content))
    pipeline.send(5, partitions=2)
    separate = run_batch.run_once(pipeline.platform(), "separate")
    assert packed is not None
    assert separate is not None
    names_by_batch = {
        row["_batch_id"]: {name for name, _ in message.headers()}
        for row, message in zip(
            pipeline.read_output(),
            read_messages(workplace.kafka_options, f"{pipeline.name}_target"),
            strict=True,
        )
    }
    assert names_by_batch == {
        packed.batch_id: {"_batchledger"},
        separate.batch_id: {"_topic", "_partition", "_offset", "_timestamp", "_batch_id"},
    }
    pipeline.assert_exact()
    assert verify_pipeline(pipeline.config).holds


def test_batch_that_an_older_version_has_staged_is_staged_again_and_published(workplace: Workplace) -> None:
    """An older version stages no records beside the rows."""
    pipeline = workplace.create(into="topic")
    pipeline.send(10)
    platform = pipeline.platform()
    batch = plans.plan(platform, "run")
    assert batch is not None
    run_batch.stage(platform, batch.batch_id, "run")
    run_batch.audit(platform, batch.batch_id, "run")
    with psycopg.connect(workplace.dsn) as connection:
        connection.execute(f"drop table batchledger_staging.b{batch.batch_id}_a1_records")
    with pytest.raises(StagingLostError, match="the staging is gone"):
        run_batch.publish(platform, batch.batch_id, "run")
    assert pipeline.read_output() == []
    published = run_batch.run_once(pipeline.platform(), "next run")
    assert published is not None
    assert (published.batch_id, published.attempt, published.state) == (batch.batch_id, 2, BatchState.PUBLISHED)
    pipeline.assert_exact()


def test_poison_records_are_quarantined_and_duplicates_are_dropped_as_for_every_sink(workplace: Workplace) -> None:
    pipeline = workplace.create(into="topic", partitions=1, dedupe={"key": ["message_id"], "remember": "30d"})
    pipeline.send(5, partitions=1)
    pipeline.send_raw([(0, b"not json"), (0, json.dumps({"message_id": pipeline.sent[0]}).encode())])
    batch = run_batch.run_once(pipeline.platform(), "run")
    assert batch is not None
    (balance,) = load_batch_history(workplace.dsn, batch.batch_id).ranges
    assert (balance.accepted, balance.quarantined, balance.duplicates, balance.unexplained) == (5, 1, 1, 0)
    pipeline.assert_exact()


def test_tombstone_deletes_its_key_from_the_topic(workplace: Workplace) -> None:
    pipeline = workplace.create(
        into="topic", partitions=1, source={"tombstones": "delete"}, sink={"key": ["message_id"]}
    )
    pipeline.send_keyed([(0, b"a", b'{"message_id": "a", "number": 1}'), (0, b"a", None)])
    run_batch.run_once(pipeline.platform(), "run")
    messages = read_messages(workplace.kafka_options, f"{pipeline.name}_target")
    assert [(each.key(), each.value() is None) for each in messages] == [(b"a", False), (b"a", True)]
    assert verify_pipeline(pipeline.config).holds


def test_replay_produces_again_and_says_so_before(workplace: Workplace, caplog: pytest.LogCaptureFixture) -> None:
    pipeline = workplace.create(into="topic", partitions=1)
    pipeline.send(10, partitions=1)
    first = run_batch.run_once(pipeline.platform(), "run")
    assert first is not None
    platform = pipeline.platform()
    replay = plans.plan_replay(platform, Replay(first.ranges), "again", ANA, "again")
    assert replay is not None
    assert "a topic replaces nothing" in caplog.text
    run_batch.take_through(platform, replay.batch_id, "again")
    assert {each["_batch_id"] for each in pipeline.read_output()} == {first.batch_id, replay.batch_id}
    assert set(pipeline.count_copies().values()) == {2}
    verification = verify_pipeline(pipeline.config)
    assert verification.holds, verification.findings
    assert (verification.rows, verification.offsets) == (20, 10)


def test_row_that_the_topic_refuses_blocks_the_batch_and_nothing_is_visible(workplace: Workplace) -> None:
    pipeline = workplace.create(into="topic", partitions=1, sink={"key": ["number"]})
    pipeline.send(3, partitions=1)
    pipeline.send_raw([(0, b'{"message_id": "without a number"}')])
    with pytest.raises(BatchBlockedError, match=r"(?s)\(number\).*For example .*@3") as blocked:
        run_batch.run_once(pipeline.platform(), "run")
    assert blocked.value.failed == (ACCEPTED_BY_TARGET,)
    assert pipeline.read_output() == []


def test_rows_without_a_key_are_set_aside_as_the_refusal_says(workplace: Workplace) -> None:
    pipeline = workplace.create(into="topic", partitions=1, sink={"key": ["number"]})
    pipeline.send(3, partitions=1)
    pipeline.send_raw([(0, b'{"message_id": "without a number"}')])
    with pytest.raises(BatchBlockedError, match="_to_not_be_null, column: number") as refused:
        run_batch.run_once(pipeline.platform(), "run")
    batch_id = refused.value.batch_id
    with pytest.raises(DecisionRefusedError, match=r"records without a value in sink\.key") as kept:
        accept(pipeline.platform(), batch_id, ANA)
    assert kept.value.batch_id == batch_id
    assert pipeline.platform().decisions.load_decisions(batch_id) == []
    (advice,) = re.findall(r"\{type: .*?\}", str(refused.value))
    content = yaml.safe_load(pipeline.path.read_text())
    pipeline.path.write_text(yaml.safe_dump({**content, "checks": [yaml.safe_load(advice)]}))
    run_batch.run_once(pipeline.platform(), "by a person", batch_id)
    (balance,) = load_batch_history(workplace.dsn, batch_id).ranges
    assert (balance.accepted, balance.quarantined, balance.unexplained) == (3, 1, 0)
    pipeline.assert_exact()


def test_pipeline_does_not_read_what_it_writes(workplace: Workplace, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also when the topic is named over another connection to the same cluster."""
    extra = json.dumps(dict(workplace.kafka_options))
    monkeypatch.setenv("AIRFLOW_CONN_SAME_KAFKA", json.dumps({"conn_type": "kafka", "extra": extra}))
    pipeline = workplace.create(into="topic", sink={"connection": "same_kafka"})
    content = yaml.safe_load(pipeline.path.read_text())
    content["sink"]["topic"] = pipeline.name
    pipeline.path.write_text(yaml.safe_dump(content))
    pipeline.send(3)
    with pytest.raises(TargetChangedError, match="would read its own rows for ever"):
        run_batch.run_once(pipeline.platform(), "run")
    assert pipeline.list_staging() == []


def test_topic_is_not_emptied_by_a_rewind_which_says_before_what_comes_once_more(
    workplace: Workplace, caplog: pytest.LogCaptureFixture
) -> None:
    pipeline = workplace.create(into="topic")
    pipeline.send(4)
    run_batch.run_once(pipeline.platform(), "run")
    with pytest.raises(DecisionRefusedError, match="its readers have seen the records"):
        rewind(pipeline.platform(), Rewind(StartPolicy.EARLIEST, truncate=True), ANA)
    rewound = ("rewind", pipeline.name, "--to", "earliest", "--reason", "the readers were told")
    once_more = "its readers would see once more what was produced of 4 offsets"
    assert once_more in " ".join(batchledger(*rewound, "--dry-run").stdout.split())
    assert once_more in " ".join(batchledger(*rewound).stderr.split())
    planned = " ".join(batchledger("plan", pipeline.name).stdout.split())
    assert once_more in planned
    assert "would replace" not in planned
    run_batch.run_once(pipeline.platform(), "again")
    assert once_more in caplog.text
    assert set(pipeline.count_copies().values()) == {2}
    assert verify_pipeline(pipeline.config).holds


@pytest.mark.parametrize("delivery", ["exactly_once", "at_most_once"])
def test_record_that_is_too_large_for_the_topic_blocks_its_batch_and_loses_nothing(
    workplace: Workplace, delivery: str
) -> None:
    """At most once, too: the position moves only when the topic would take every record."""
    pipeline = workplace.create(into="topic", delivery=delivery)
    target = f"{pipeline.name}_target"
    create_topic(workplace.kafka_options, target, 2, {"max.message.bytes": "20000"})
    pipeline.send(10)
    pipeline.send_raw([(0, json.dumps({"message_id": secrets.token_hex(20_000)}).encode())])
    with pytest.raises(BatchBlockedError, match=r"max\.message\.bytes") as blocked:
        run_batch.run_once(pipeline.platform(), "run")
    assert blocked.value.failed == (ACCEPTED_BY_TARGET,)
    assert {each.next_offset for each in pipeline.platform().ledger.load_positions(pipeline.name)} == {0}
    change = ConfigEntry("max.message.bytes", "200000", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, target, incremental_configs=[change])
    with admin_client(workplace.kafka_options) as client:
        client.incremental_alter_configs([resource])[resource].result(30)
    run_batch.run_once(pipeline.platform(), "by a person", blocked.value.batch_id)
    assert pipeline.count_target_rows() == 11
    assert verify_pipeline(pipeline.config).holds
