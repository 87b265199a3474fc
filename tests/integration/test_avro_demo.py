"""The flights in Avro, as the demo writes and takes them, with a real registry and broker."""

import pytest
import yaml
from rich.console import Console

from batchledger.lifecycle import run_batch
from batchledger.local.demo import PIPELINE_FILES, add_pipeline_file
from batchledger.local.samples.admin import KEEP_FOREVER
from batchledger.local.samples.flights import FLIGHT_COUNT
from batchledger.local.samples.samples import SampleOrder, produce_samples
from batchledger.model.errors import ConfigurationError
from tests.support import TestPipeline, Workplace

CONSOLE = Console(quiet=True)


def create(workplace: Workplace) -> TestPipeline:
    """The demo's own pipeline, with one batch for all flights."""
    content = yaml.safe_load((PIPELINE_FILES / "flights_avro.yaml").read_text())
    limits = {"max_records": FLIGHT_COUNT}
    source = content["source"]
    return workplace.create(4, KEEP_FOREVER, content["name"], source=source, limits=limits)


def test_every_flight_is_written_once_and_becomes_a_row(workplace: Workplace, registry_url: str) -> None:
    pipeline = create(workplace)
    first, second = (produce_samples(pipeline.config, SampleOrder(), CONSOLE) for _ in range(2))
    assert (first.already_there, first.gained) == (0, FLIGHT_COUNT)
    assert (second.already_there, second.gained) == (FLIGHT_COUNT, 0)
    run_batch.run_once(pipeline.platform(), "run")
    assert pipeline.query(
        "select count(*), count(distinct message_id), count(tailnum), count(air_time), min(sched_dep)::text "
        "from {target}"
    ) == [(FLIGHT_COUNT, FLIGHT_COUNT, FLIGHT_COUNT - 2512, FLIGHT_COUNT - 9430, "2013-01-01 10:15:00+00")]
    assert pipeline.query("select count(*) from batchledger.quarantine where pipeline = %s", pipeline.name) == [(0,)]
    with pytest.raises(ConfigurationError, match="No records can be made up for topic flights_avro"):
        produce_samples(pipeline.config, SampleOrder(10), CONSOLE)


def test_demo_adds_its_pipeline_file_and_leaves_one_that_is_there(workplace: Workplace) -> None:
    added = workplace.folder / "flights_avro.yaml"
    add_pipeline_file("flights")
    assert not (workplace.folder / "flights.yaml").exists()
    add_pipeline_file("flights_avro")
    assert yaml.safe_load(added.read_text())["name"] == "flights_avro"
    added.write_text("mine")
    add_pipeline_file("flights_avro")
    assert added.read_text() == "mine"
