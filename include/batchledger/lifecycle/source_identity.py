"""Whether Kafka still has the very topics that a batch was planned over: a topic of the same name may be another one.

A reader of records looks afterwards, before it uses them: records that were read before the look can only come from the
topic that is found there, or from one that it has replaced.
"""

from batchledger.lifecycle.platform import Platform
from batchledger.model.batch import Batch, LogState, Position
from batchledger.planning.live import check_identity
from batchledger.ports import Ledger


def require_same_topics(platform: Platform, batch: Batch) -> None:
    """Raise TopicChangedError when a topic of the batch is not the one that its position was stored for."""
    check_identity(*look_at_source(platform, batch))


def look_at_source(platform: Platform, batch: Batch) -> tuple[tuple[Position, ...], LogState]:
    """Return the positions that the batch is about, and what Kafka says of its topics now."""
    return positions_of(batch, platform.ledger), platform.source.read_log(topics_of(batch))


def positions_of(batch: Batch, ledger: Ledger) -> tuple[Position, ...]:
    """Return where the pipeline is in the partitions of the batch."""
    concerned = {each.partition for each in batch.ranges}
    return tuple(position for position in ledger.load_positions(batch.pipeline) if position.partition in concerned)


def topics_of(batch: Batch) -> tuple[str, ...]:
    """Return the topics of the batch, each once."""
    return tuple(dict.fromkeys(each.partition.topic for each in batch.ranges))
