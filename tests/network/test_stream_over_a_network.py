"""Rows stream from workers on another machine; a way that is not there, or is cut, lets them be staged."""

import logging
from collections.abc import Callable

import pytest

from batchledger.lifecycle import run_batch
from batchledger.model.batch import BatchState
from batchledger.sinks.streaming.door import Door
from tests.cluster import Cluster
from tests.conftest import choose_ports
from tests.integration.test_streams import STREAMED, list_given_up
from tests.network.conftest import HERE, NO_WAY, Namespace
from tests.support import TestPipeline, Workplace

RECORDS = 40_000


@pytest.fixture
def pipeline(workplace: Workplace) -> TestPipeline:
    """Its records wait, and its table is there."""
    pipeline = workplace.create(partitions=2)
    pipeline.send(10)
    run_batch.run_once(pipeline.platform(), "first")
    pipeline.send(RECORDS)
    return pipeline


def take(pipeline: TestPipeline) -> None:
    """Take the batch that waits, in one attempt, and prove it."""
    batch = run_batch.run_once(pipeline.platform(), "run")
    assert batch is not None
    assert (batch.state, batch.attempt) == (BatchState.PUBLISHED, 1)
    pipeline.assert_exact()


def test_rows_stream_from_another_machine(
    pipeline: TestPipeline, cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    with cluster.connected(stream_host=HERE), caplog.at_level(logging.INFO):
        take(pipeline)
    assert f"{STREAMED}: {RECORDS:,} rows" in caplog.text
    assert list_given_up(pipeline) == [None, None]


# The Spark Connect server is on this machine, so auto is loopback here, where nothing from there arrives.
@pytest.mark.parametrize("host", [NO_WAY, "auto"])
def test_rows_are_staged_if_no_way_leads_to_the_step(pipeline: TestPipeline, cluster: Cluster, host: str) -> None:
    with cluster.connected(stream_host=host):
        take(pipeline)
    assert "could not stream its rows" in str(list_given_up(pipeline)[1])


def test_rows_are_staged_if_the_way_is_cut_in_the_middle(
    pipeline: TestPipeline, cluster: Cluster, namespace: Namespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = choose_ports().registry
    taken: list[int] = []
    real: Callable[..., None] = Door.__init__

    def open_cut(door: Door, take_frame: Callable[[memoryview], None], address: object) -> None:
        def take_and_cut(view: memoryview) -> None:
            take_frame(view)
            taken.append(len(view))
            namespace.cut(port)

        real(door, take_and_cut, address)

    monkeypatch.setattr(Door, "__init__", open_cut)
    with cluster.connected(stream_host=HERE, stream_ports=str(port)):
        take(pipeline)
    assert taken
    assert "stream" in str(list_given_up(pipeline)[1])
