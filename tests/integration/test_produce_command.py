"""``batchledger produce`` as users call it: what it says of each guarantee, and what it refuses."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from batchledger.cli import app
from batchledger.model.errors import ConfigurationError
from tests.conftest import Kafka, open_workplace
from tests.support import TestPipeline, Workplace, delete_records


def call_produce(pipeline: str, *arguments: str) -> Result:
    return CliRunner().invoke(app, ["produce", pipeline, *arguments])


@pytest.fixture
def workplace_without_a_warehouse(kafka: Kafka) -> Iterator[Workplace]:
    with open_workplace(kafka.options) as opened:
        yield opened


@pytest.fixture
def pipeline(workplace_without_a_warehouse: Workplace) -> TestPipeline:
    """A pipeline file and its topic."""
    return workplace_without_a_warehouse.create(partitions=1)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ((), {"guarantee": "idempotent", "acknowledged": 30, "unknown": 0, "committed": None, "offsets_gained": 30}),
        (("--guarantee", "plain"), {"guarantee": "plain", "acknowledged": 30, "unknown": 0, "offsets_gained": 30}),
        (("--guarantee", "acks_0"), {"guarantee": "acks_0", "acknowledged": 0, "unknown": 30, "offsets_gained": 30}),
        (
            ("--guarantee", "transactional", "--records-per-transaction", "10", "--abort-every", "3"),
            {"acknowledged": 30, "committed": 20, "aborted": 10, "offsets_gained": 33},
        ),
    ],
)
def test_produce_tells_what_became_of_the_records(
    pipeline: TestPipeline, arguments: tuple[str, ...], expected: Mapping[str, Any]
) -> None:
    done = call_produce(pipeline.name, "--records", "30", "--partitions", "1", "--json", *arguments)
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    assert (told["topic"], told["already_there"], told["sent"], told["failed"]) == (pipeline.name, 0, 30, 0)
    assert {name: told[name] for name in expected} == expected
    assert told["explanation"]


def test_produce_goes_on_after_the_beginning_of_the_topic_has_expired(kafka: Kafka, pipeline: TestPipeline) -> None:
    order = ("--records", "30", "--partitions", "1", "--json")
    assert call_produce(pipeline.name, *order).exit_code == 0
    delete_records(kafka.options, pipeline.name, 0, before_offset=10)
    done = call_produce(pipeline.name, *order)
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["offsets_gained"] == 30


def test_produce_shows_a_table_and_what_the_guarantee_means(pipeline: TestPipeline) -> None:
    done = call_produce(pipeline.name, "--records", "30", "--partitions", "1", "--guarantee", "transactional")
    assert done.exit_code == 0, done.output
    for text in ("Guarantee: transactional", "committed", "offsets gained", "read_committed shows whole transactions"):
        assert text in done.stdout


def test_produce_exits_with_1_when_the_broker_refused_a_record(workplace_without_a_warehouse: Workplace) -> None:
    pipeline = workplace_without_a_warehouse.create(partitions=1, topic_config={"max.message.bytes": "100"})
    done = call_produce(pipeline.name, "--records", "30", "--partitions", "1", "--json", "--guarantee", "plain")
    assert done.exit_code == 1, done.output
    told = json.loads(done.stdout)
    assert told["failed"] > 0
    assert told["offsets_gained"] == told["acknowledged"]


def test_data_set_is_written_by_an_idempotent_producer_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is opened for it: no broker runs for this test."""
    monkeypatch.delenv("BATCHLEDGER_PIPELINES")
    done = call_produce("flights", "--guarantee", "plain")
    assert isinstance(done.exception, ConfigurationError)
    assert "--records 10000" in str(done.exception)


@pytest.mark.parametrize(
    "arguments", [("--abort-every", "2"), ("--guarantee", "plain", "--records-per-transaction", "5")]
)
def test_options_of_transactions_need_the_transactional_guarantee(arguments: tuple[str, ...]) -> None:
    done = call_produce("any", *arguments)
    assert done.exit_code == 2
    assert "transactional" in done.output
