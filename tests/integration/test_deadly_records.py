"""A record whose decoding kills Spark's Python worker is set aside by its place, and its neighbours are published.

``tests.deadly`` is the library that dies. The negative control: without a second look the batch fails.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import cast

import pytest
from pyspark import cloudpickle

from batchledger.lifecycle import run_batch
from batchledger.lifecycle.platform import Platform
from batchledger.model.errors import StagingError
from batchledger.source.spark import stager as staging
from batchledger.source.spark.stager import SparkStager
from batchledger.wiring import verify_pipeline
from tests import deadly as library
from tests import transforms
from tests.avro import frame, register
from tests.deadly import KILL, RAISE, SEGFAULT, DeadlyDecoder
from tests.integration import test_avro_records as avro
from tests.integration import test_protobuf_records as protobuf
from tests.protobuf import register_file
from tests.support import TestPipeline, Workplace

IDS = ("a", "b", SEGFAULT.decode(), "c", "d", KILL.decode(), "e", RAISE.decode())
TOLD = {
    2: "decoding it ends the process by SIGSEGV",
    5: "decoding it ends the process by SIGKILL",
    7: "decoding it ends with LookupError",
}


@pytest.fixture(autouse=True)
def _known_to_workers() -> Iterator[None]:
    """Spark's workers import no tests."""
    for module in (library, transforms):
        cloudpickle.register_pickle_by_value(module)
    yield
    for module in (library, transforms):
        cloudpickle.unregister_pickle_by_value(module)


def deadly(pipeline: TestPipeline) -> Platform:
    """The pipeline's platform, whose decoder dies of some records."""
    platform = pipeline.platform()

    def make_stager() -> SparkStager:
        stager = cast("SparkStager", platform.make_stager())
        return replace(stager, decoder=DeadlyDecoder.of(stager.decoder))

    return replace(platform, make_stager=make_stager)


def create(workplace: Workplace, registry_url: str, kind: str, transform: str | None) -> TestPipeline:
    """A pipeline of one format, and a record for each id."""
    more = {"transform": transform} if transform else {}
    if kind == "json":
        pipeline = workplace.create(partitions=1, quarantine={"max_share": 1}, **more)
        values = [b'{"message_id":"%s"}' % each.encode() for each in IDS]
    elif kind == "avro":
        pipeline = avro.create(workplace, **more)
        schema_id = register(registry_url, pipeline.name, avro.FIRST)
        values = [frame(schema_id, avro.order(avro.FIRST, each)) for each in IDS]
    else:
        pipeline = protobuf.create(workplace, **more)
        schema_id = register_file(registry_url, pipeline.name, protobuf.FIRST)
        values = [frame(schema_id, protobuf.ONE + protobuf.first(each)) for each in IDS]
    pipeline.send_raw([(0, value) for value in values])
    return pipeline


@pytest.mark.parametrize("transform", [None, "tests.transforms:keep_all"], ids=["written at once", "transformed"])
@pytest.mark.parametrize("kind", ["json", "avro", "protobuf"])
def test_record_that_kills_its_worker_is_set_aside_and_its_neighbours_are_published(
    workplace: Workplace, registry_url: str, kind: str, transform: str | None
) -> None:
    pipeline = create(workplace, registry_url, kind, transform)
    run_batch.run_once(deadly(pipeline), "run")
    assert pipeline.query("select message_id from {target} order by 1") == [("a",), ("b",), ("c",), ("d",), ("e",)]
    found = pipeline.query(
        'select topic, partition, "offset", error from batchledger.quarantine where pipeline = %s order by 3',
        pipeline.name,
    )
    assert found == [(pipeline.name, 0, offset, told) for offset, told in TOLD.items()]
    assert verify_pipeline(pipeline.config).holds


def test_negative_control_without_a_second_look_the_batch_fails_and_names_no_record(
    workplace: Workplace, registry_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = create(workplace, registry_url, "json", None)
    monkeypatch.setattr(staging, "has_worker_died", lambda error: False)
    with pytest.raises(StagingError):
        run_batch.run_once(deadly(pipeline), "run")
    assert pipeline.query("select count(*) from batchledger.quarantine where pipeline = %s", pipeline.name) == [(0,)]


def test_worker_that_dies_of_a_transform_is_told_from_one_that_dies_of_a_record(workplace: Workplace) -> None:
    pipeline = workplace.create(partitions=1, transform="tests.transforms:die")
    pipeline.send(3, partitions=1)
    with pytest.raises(StagingError, match="or dies of transform"):
        run_batch.run_once(pipeline.platform(), "run")
