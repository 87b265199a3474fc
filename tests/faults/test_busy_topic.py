"""A process that is killed while it publishes to a topic that others write to all the time."""

import logging

import pytest

from batchledger.lifecycle import run_batch
from batchledger.model.batch import BatchState
from tests.faults.run_and_die import run_until_killed
from tests.support import Workplace, admin_client, create_topic
from tests.topics import busy


@pytest.mark.parametrize("is_forgotten", [False, True], ids=["group is there", "group was deleted"])
@pytest.mark.parametrize("point", ["announced", "sink_committed"])
def test_first_batch_killed_on_a_busy_topic_is_published_once(
    workplace: Workplace, caplog: pytest.LogCaptureFixture, point: str, is_forgotten: bool
) -> None:
    caplog.set_level(logging.INFO)
    pipeline = workplace.create(into="topic")
    create_topic(workplace.kafka_options, f"{pipeline.name}_target", 2)
    pipeline.send(50)
    with busy(workplace.kafka_options, f"{pipeline.name}_target"):
        run_until_killed(pipeline.name, "killed", point)
        if is_forgotten:
            group = f"batchledger.{pipeline.name}.sink"
            with admin_client(workplace.kafka_options) as client:
                client.delete_consumer_groups([group])[group].result(30)
        batch = run_batch.run_once(pipeline.platform(), "next")
    assert batch is not None
    # Records that have streamed are staged nowhere.
    assert (batch.state, batch.attempt) == (BatchState.PUBLISHED, 2 if point == "announced" else 1)
    assert ("is searched for" in caplog.text) is is_forgotten
    pipeline.assert_exact()
