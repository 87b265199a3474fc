"""The rights in Kafka that the guide lists are enough for a pipeline, and each of them is needed."""

import re
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import pytest
from confluent_kafka.admin import AclOperation, ResourceType

from batchledger.lifecycle import plans, run_batch
from batchledger.model import errors
from batchledger.model.batch import Batch, BatchState, Decision
from batchledger.model.offsets import OffsetRange
from batchledger.planning.replay import Replay
from batchledger.proof.verification import Verification
from batchledger.wiring import verify_pipeline
from tests.conftest import ROOT, open_workplace
from tests.integration.test_secured_broker import act_as
from tests.secured_kafka import SecuredKafka, broker
from tests.support import TestPipeline

__all__ = ["broker"]

ANA = Decision("ana@host", "the readers were told")
USER = "planner"
_ROW = re.compile(r"^\| (\w+) \| (topic|group|transactional id) `(.+?)` \| `?(\w+).*? \| `?(\w+).*\|$", re.MULTILINE)


class Right(NamedTuple):
    """One row of the guide: the first word of what it is for, and of what happens without it."""

    operation: str
    kind: str
    name: str
    use: str
    without: str

    def __str__(self) -> str:
        return f"{self.operation} on {self.kind} {self.name}"


RIGHTS = [Right(*row) for row in _ROW.findall((ROOT / "docs" / "guides" / "security.md").read_text())]
REFUSED = [right for right in RIGHTS if right.without.endswith("Error")]


@pytest.fixture
def pipeline(
    broker: SecuredKafka, warehouse_dsn: str, spark: None, monkeypatch: pytest.MonkeyPatch
) -> Iterator[TestPipeline]:
    """From a topic with an aborted record and its marker into a topic that does not exist."""
    with open_workplace(broker.operator, warehouse_dsn) as workplace:
        source = {"connection": "kafka_secured", "holes": "transactional"}
        pipeline = workplace.create(into="topic", source=source, sink={"connection": "kafka_secured"})
        pipeline.send(20)
        pipeline.send_in_transaction([b'{"message_id": "never seen"}'], partition=0, commit=False)
        act_as(broker.password("PLAIN", USER), monkeypatch)
        yield pipeline


def name_of(right: Right, pipeline: TestPipeline) -> str:
    name = right.name.replace("<source>", pipeline.name).replace("<target>", f"{pipeline.name}_target")
    return name.replace("<pipeline>", pipeline.name)


def grant(broker: SecuredKafka, pipeline: TestPipeline, rights: Iterable[Right]) -> None:
    for right in rights:
        kind = ResourceType[right.kind.upper().replace(" ", "_")]
        broker.grant(USER, kind, name_of(right, pipeline), AclOperation[right.operation])


def take_batch(pipeline: TestPipeline) -> Batch:
    """Take the one batch of the pipeline through, or go on with it."""
    platform = pipeline.platform()
    waiting = platform.ledger.find_open_batch(pipeline.name)
    batch = run_batch.run_once(platform, "run", None if waiting is None else waiting.batch_id)
    assert batch is not None
    assert batch.state is BatchState.PUBLISHED
    return batch


def take_replay(pipeline: TestPipeline) -> None:
    """Publish what the pipeline has published once more."""
    platform = pipeline.platform()
    positions = platform.ledger.load_positions(pipeline.name)
    published = tuple(OffsetRange(each.partition, 0, each.next_offset) for each in positions)
    replay = plans.plan_replay(platform, Replay(published), "replay", ANA, "again")
    assert replay is not None
    run_batch.take_through(platform, replay.batch_id, "replay")


def verify(pipeline: TestPipeline) -> Verification:
    found = verify_pipeline(pipeline.config)
    assert found.holds, found.findings
    return found


ACTION_BY_USE: dict[str, Callable[[TestPipeline], object]] = {
    "batches": take_batch,
    "replays": take_replay,
    "verify": verify,
}


def test_these_rights_are_enough(
    broker: SecuredKafka, pipeline: TestPipeline, caplog: pytest.LogCaptureFixture
) -> None:
    grant(broker, pipeline, RIGHTS)
    take_batch(pipeline)
    pipeline.assert_exact()
    take_replay(pipeline)
    assert set(pipeline.count_copies().values()) == {2}
    assert verify(pipeline).incomplete_until == 0
    assert "authorization failed" not in caplog.text
    assert "grant" not in caplog.text


@pytest.mark.parametrize("right", REFUSED, ids=str)
def test_without_one_of_them_the_refusal_names_it_and_what_it_is_for_works_after_the_grant(
    broker: SecuredKafka, pipeline: TestPipeline, right: Right
) -> None:
    grant(broker, pipeline, [each for each in RIGHTS if each != right])
    if right.use != "batches":
        take_batch(pipeline)
    act = ACTION_BY_USE[right.use]
    with pytest.raises(getattr(errors, right.without)) as refused:
        act(pipeline)
    assert right.operation in str(refused.value)
    assert name_of(right, pipeline) in str(refused.value)
    grant(broker, pipeline, [right])
    act(pipeline)
    assert set(pipeline.count_copies().values()) == {2 if right.use == "replays" else 1}


def test_without_the_other_ones_batches_are_published_and_what_is_missing_is_said(
    broker: SecuredKafka, pipeline: TestPipeline, caplog: pytest.LogCaptureFixture
) -> None:
    others = set(RIGHTS) - set(REFUSED)
    assert {str(each) for each in others} == {
        "READ on group batchledger.<pipeline>",
        "DESCRIBE_CONFIGS on topic <target>",
    }
    grant(broker, pipeline, REFUSED)
    batch = take_batch(pipeline)
    pipeline.assert_exact()
    assert "only the courtesy offsets for lag tools were not committed" in caplog.text
    # Whether the topic is compacted is unknown.
    assert verify(pipeline).incomplete_until == batch.batch_id
