"""What a rewind reads and changes of the ledger, within a transaction that holds the pipeline's lock."""

from collections.abc import Mapping

from batchledger.database.transactions import read_ranges, read_statement
from batchledger.ledger.publication import PostgresTargetAccess
from batchledger.ledger.rows import Cursor, find_batch, has_rows
from batchledger.model.offsets import OffsetRange, TopicPartition
from batchledger.ports import Truncate


def holds_anything(cursor: Cursor, pipeline: str) -> bool:
    """Whether the target has rows of the pipeline: of published batches, or of one between its two commits."""
    query = "select exists (select from batchledger.batch_range where pipeline = %s and not isempty(held))"
    cursor.execute(query, [pipeline])
    is_held = bool(cursor.fetchall()[0][0])
    open_batch = find_batch(cursor, pipeline=pipeline)
    return is_held or (open_batch is not None and has_rows(cursor, open_batch.batch_id))


def read_held(cursor: Cursor, pipeline: str) -> list[OffsetRange]:
    """Return the offsets that published batches hold, in order."""
    cursor.execute(
        "select topic, partition, lower(piece), upper(piece) from batchledger.batch_range, unnest(held) piece "
        "where pipeline = %s and not isempty(held) order by topic, partition, piece",
        [pipeline],
    )
    return read_ranges(cursor)


def read_epoch(cursor: Cursor, pipeline: str) -> int:
    """Return how often the pipeline was rewound."""
    cursor.execute("select epoch from batchledger.pipeline where name = %s", [pipeline])
    return next((int(epoch) for (epoch,) in cursor), 0)


def truncate_target(cursor: Cursor, pipeline: str, truncate: Truncate) -> int:
    """Empty the target, if the pipeline has ever published to one; return how many rows it held."""
    cursor.execute("select target_identity is not null from batchledger.pipeline where name = %s", [pipeline])
    ((has_target,),) = cursor.fetchall()
    rows = truncate(PostgresTargetAccess(cursor.connection, pipeline)) if has_target else 0
    cursor.execute(read_statement(__package__, "forget_held"), {"pipeline": pipeline})
    return rows


def offsets_as_arrays(offsets: Mapping[TopicPartition, int]) -> dict[str, list[str] | list[int]]:
    """Return offsets as the parameters of a statement that unnests them."""
    return {
        "topics": [each.topic for each in offsets],
        "partitions": [each.partition for each in offsets],
        "offsets": list(offsets.values()),
    }
