"""What the ledger has of pipelines that matters for the start of their next runs. Reads only."""

from collections.abc import Sequence

from batchledger.database.transactions import read_statement
from batchledger.ledger.presence import find_presences
from batchledger.ledger.schema import transaction
from batchledger.model.batch import BatchState
from batchledger.model.offsets import TopicPartition
from batchledger.model.presence import Patience
from batchledger.monitoring.starting import StartFacts


def load_start_facts(dsn: str, pipelines: Sequence[str]) -> dict[str, StartFacts]:
    """Return the facts of each of these pipelines, in two statements. Raises ServiceUnavailableError."""
    with transaction(dsn, "look which pipelines have records to read") as cursor:
        cursor.execute(read_statement(__package__, "list_start_facts"), [list(pipelines)])
        rows = cursor.fetchall()
        presences = find_presences(cursor, [batch_id for _, _, batch_id, *_ in rows if batch_id is not None])
    patience = Patience()
    return {
        name: StartFacts(
            {
                TopicPartition(topic, partition): offset
                for topic, partition, offset in zip(topics, partitions, offsets, strict=True)
            },
            is_paused,
            None if batch_id is None else (batch_id, BatchState(state)),
            is_at_work=batch_id in presences and presences[batch_id].lasts(patience),
            seconds_since_published=seconds,
        )
        for name, is_paused, batch_id, state, seconds, topics, partitions, offsets in rows
    }
