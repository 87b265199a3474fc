"""The material of the proof of a pipeline in memory; the judgement is the real one."""

from collections import Counter, defaultdict
from datetime import datetime
from functools import partial

from batchledger.model.batch import BatchState
from batchledger.model.offsets import count_offsets, find_gaps, intersect
from batchledger.model.records.rules import SinkMode
from batchledger.proof.proving import prove as prove_pipeline
from batchledger.proof.verification import PublishedHistory, PublishedRange, Removed, TargetKey, Verification
from tests.fakes.database import MemoryDatabase, StoredBatch, StoredReplacement, Tables
from tests.fakes.sink import MemorySink

_NOT_EARLY = {BatchState.PUBLISHED, BatchState.DISCARDED, BatchState.BLOCKED}


def prove(sink: MemorySink, pipeline: str) -> Verification:
    """Prove the invariants over everything that the database of ``sink`` holds of the pipeline."""
    load = partial(load_published_history, sink.database, pipeline)
    return prove_pipeline(pipeline, load, partial(sink.count_target, pipeline), SinkMode.APPEND)


def find_window(database: MemoryDatabase, pipeline: str, newest: int) -> datetime | None:
    """Return when the oldest of the newest batches was published; None when there are no more than that."""
    moments = sorted(
        (
            each.published_at
            for each in database.committed.batches.values()
            if each.batch.pipeline == pipeline and each.published_at is not None
        ),
        reverse=True,
    )
    return moments[newest - 1] if len(moments) > newest else None


def load_published_history(database: MemoryDatabase, pipeline: str, since: datetime | None = None) -> PublishedHistory:
    """Return the material of the proof, of one moment."""
    tables = database.committed
    ranges = _list_published(tables, pipeline)
    if since is not None:
        asked = _find_published_since(tables, pipeline, since)
        ranges = [each for each in ranges if each.batch_id in asked]
    published = {each.batch_id for each in ranges}
    quarantined: Counter[TargetKey] = Counter()
    for (owner, partition, _), row in tables.quarantine.items():
        if owner == pipeline and (since is None or row["batch_id"] in published):
            quarantined[row["batch_id"], partition] += 1
    mine = [each for each in tables.batches.values() if each.batch.pipeline == pipeline]
    return PublishedHistory(
        positions=[position for (owner, _), position in sorted(tables.positions.items()) if owner == pipeline],
        ranges=ranges,
        quarantined=quarantined,
        epoch=tables.epochs.get(pipeline, 0),
        visible_early=frozenset(
            each.batch.batch_id
            for each in mine
            if (each.has_rows or each.batch.state is BatchState.COMMITTING) and each.batch.state not in _NOT_EARLY
        ),
    )


def _find_published_since(tables: Tables, pipeline: str, since: datetime) -> set[int]:
    published = {key: each for key, each in tables.batches.items() if each.published_at and _is_of(each, pipeline)}
    recent = {key: each for key, each in published.items() if each.published_at and each.published_at >= since}
    offsets = [range_ for each in recent.values() for range_ in each.batch.ranges]
    return set(recent) | {key for key, each in published.items() if intersect(each.held, offsets)}


def _is_of(stored: StoredBatch, pipeline: str) -> bool:
    return stored.batch.pipeline == pipeline


def _list_published(tables: Tables, pipeline: str) -> list[PublishedRange]:
    removed: dict[int, list[StoredReplacement]] = defaultdict(list)
    for each in tables.replacements.values():
        removed[each.replaced.batch_id].append(each)
    return [
        _published(stored, index, removed[batch_id])
        for batch_id, stored in tables.batches.items()
        if stored.batch.pipeline == pipeline and stored.batch.state is BatchState.PUBLISHED
        for index in range(len(stored.batch.ranges))
    ]


def _published(stored: StoredBatch, index: int, replacements: list[StoredReplacement]) -> PublishedRange:
    range_, balance = stored.batch.ranges[index], stored.balances[index]
    mine = [each for each in replacements if intersect([each.replaced.range], [range_])]
    return PublishedRange(
        batch_id=stored.batch.batch_id,
        range=range_,
        accepted=balance.accepted,
        quarantined=balance.quarantined,
        unexplained=balance.unexplained,
        has_rows=stored.has_rows,
        duplicates=balance.duplicates,
        accepted_loss=balance.accepted_loss,
        lane=stored.batch.lane,
        epoch=stored.epoch,
        replaced=tuple(find_gaps(stored.held, within=[range_])),
        removed=Removed(
            sum(each.rows for each in mine),
            sum(each.quarantined for each in mine) + count_offsets(intersect(stored.dropped, [range_])),
            0,
        ),
        quarantine_dropped=count_offsets(intersect(stored.dropped, [range_])),
        rows_erased=len({at for at in stored.erased if at[0] == range_.partition and at[1] in range_}),
    )
