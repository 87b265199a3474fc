"""A table without coordinates: the rows of a look are found by the keys of the records of Kafka.

The offsets of the records are known, so an offset is held if its key has a row. That is weaker: which record a row was
made of is not known. Kafka is read in portions, and the table is asked for the keys of a portion at once, so that
memory does not grow with either.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from typing_extensions import override

from batchledger.formats.decoding.decoder import RecordDecoder
from batchledger.model.offsets import OffsetRange, TopicPartition, count_offsets, find_gaps, intersect
from batchledger.model.records.columns import DELETED_COLUMN
from batchledger.proof.watching import ComparedTable, Discrepancy, TableCount
from batchledger.watching.counting import Integers, OffsetCounter, cover, pack
from batchledger.watching.keyed import (
    PORTION_RECORDS,
    SEPARATOR,
    AppendedKeys,
    Flags,
    KeyedRecords,
    KeyJudge,
    UpsertedKeys,
)
from batchledger.watching.postgres_keys import PostgresKeys
from batchledger.watching.table import ENDLESS, Asked, WatchedTable

PORTION_BYTES = 64 * 1024 * 1024
HELD, SEEN = "held", "seen"


@dataclass
class _KindCounter:
    """Offsets by what they are, counted in bits."""

    partitions: Sequence[TopicPartition]
    room: Sequence[OffsetRange]
    counters: dict[str, OffsetCounter] = field(default_factory=dict)
    first_fault: str = ""

    def add(self, kind: str, lanes: Integers, offsets: Integers) -> None:
        counter = self.counters.setdefault(kind, OffsetCounter(self.room))
        for lane in np.unique(lanes).tolist():
            partition, chosen = self.partitions[lane], offsets[lanes == lane]
            counter.add(pack(partition.topic, np.full(len(chosen), partition.partition), chosen))

    def refuse(self, lanes: Integers, offsets: Integers, why: str) -> None:
        self.add(Discrepancy.UNDECODABLE, lanes, offsets)
        name = f"{self.partitions[lanes[0]]}@{offsets[0]}"
        self.first_fault = self.first_fault or f"Undecodable is {name}, for one: {why}."

    def ranges_of(self, kind: str) -> tuple[OffsetRange, ...]:
        ends = {each.partition: each.until for each in self.room}
        counter = self.counters.get(kind)
        return counter.finish((), ends).held if counter else ()

    def find_lanes(self, records: pa.RecordBatch, prefix: str = "") -> tuple[Integers, Integers]:
        """Return the numbers of the partitions of records, and their offsets."""
        topics = sorted({each.topic for each in self.partitions})
        of_topic = pc.index_in(records[f"{prefix}topic"], value_set=pa.array(topics)).to_numpy().astype(np.int64)
        places = (of_topic << 32) + records[f"{prefix}partition"].to_numpy()
        known = [(topics.index(each.topic) << 32) + each.partition for each in self.partitions]
        return np.searchsorted(known, places), records[f"{prefix}offset"].to_numpy()


@dataclass(frozen=True)
class KeyedTable(WatchedTable):
    """A table whose rows have a key of their records. ``read`` yields the committed records of readable ranges.

    ``decoder`` makes the columns of them that the rule of ``rows`` needs.
    """

    rows: PostgresKeys
    decoder: RecordDecoder
    read: Callable[[Sequence[OffsetRange]], Iterable[pa.RecordBatch]] = field(repr=False)
    portion_records: int = PORTION_RECORDS
    newest_parts: ClassVar[int] = 0
    """Each part that is proved again is read from Kafka: a share is dear enough."""

    @property
    @override
    def name(self) -> str:
        return self.rows.relation.name

    @override
    def find_moment(self) -> datetime | None:
        return self.rows.relation.find_moment()

    @override
    def compare(self, asked: Asked) -> ComparedTable:
        """Read the records of the frames, and ask for the rows of their keys."""
        partitions = [each.known.partition for each in asked.frames]
        present = [OffsetRange(each, asked.log.log_by_partition[each].log_start, ENDLESS) for each in partitions]
        readable = intersect([part for each in asked.frames for part in (*each.due, *each.old)], present)
        tally = _KindCounter(sorted(partitions), cover(readable))
        judge: KeyJudge = UpsertedKeys() if self.rows.rule.compared else AppendedKeys()
        self._judge_portions(asked, readable, tally, judge)
        if judge.is_waiting:
            self._read_on(asked, readable, tally, judge)
        finished = judge.finish()
        for kind, places in ((HELD, finished.held), *finished.found.items()):
            if places:
                lanes, offsets = np.array(places, np.int64).T
                tally.add(kind, lanes, offsets)
        seen = tally.ranges_of(SEEN)
        lost = count_offsets(find_gaps(present, within=[part for each in asked.frames for part in each.old]))
        frames = [replace(each, old=tuple(intersect(each.old, seen))) for each in asked.frames]
        kinds = (Discrepancy.UNDECODABLE, Discrepancy.STALE, Discrepancy.UNDELETED)
        judged = {kind: ranges for kind in kinds if (ranges := tally.ranges_of(kind))}
        notes = tuple(self._note(finished.notes, tally, lost))
        held, repeated = tally.ranges_of(HELD), tally.ranges_of(Discrepancy.TWICE)
        return ComparedTable(frames, TableCount(held, repeated, seen=seen, judged=judged, notes=notes))

    def _note(self, notes: Iterable[str], tally: _KindCounter, lost: int) -> Iterator[str]:
        yield (
            f"Proved by key ({', '.join(self.rows.rule.key)}), not by offset: a row is known to be there, and not to "
            "be the row of this record alone. Rows whose key no record has are not found."
        )
        yield from notes
        if lost:
            yield f"{lost:,} offsets that were to be proved again are no longer in Kafka, so their keys are not known."
        if self.rows.rule.compared:
            yield "What was proved of an upserted table is not proved again, except by --all."
        if tally.first_fault:
            yield tally.first_fault

    def _judge_portions(
        self, asked: Asked, readable: Sequence[OffsetRange], tally: _KindCounter, judge: KeyJudge
    ) -> None:
        is_first = True
        for portion in self._portions(readable):
            tally.add(SEEN, *tally.find_lanes(portion))
            records, texts = self._decode(portion, tally, is_judged=True)
            groups = judge.group(records)
            if not groups.keys:
                continue
            newest = [each.take(pa.array(groups.newest)) for each in texts]
            if is_first:
                total = count_offsets(readable)
                cost = self.rows.estimate(newest, total)
                asked.tell(
                    f"{self.name}: reads {total:,} offsets of Kafka, and about {cost.rows:,} rows by key: {cost.how}"
                )
                is_first = False
            held = judge.judge(records, groups, self.rows.ask(newest))
            tally.add(HELD, records.lanes[held], records.offsets[held])

    def _read_on(self, asked: Asked, readable: Sequence[OffsetRange], tally: _KindCounter, judge: KeyJudge) -> None:
        """Read where records may lie that a key waits for: what was not asked, and what has come meanwhile."""
        starts, log_by_partition = judge.find_starts(), asked.read_log().log_by_partition
        wanted = []
        for place, partition in enumerate(tally.partitions):
            bounds = log_by_partition[partition]
            if starts is None or place in starts:
                # Rows may be of records from before the watch began.
                start = bounds.log_start if starts is None else max(starts[place] + 1, bounds.log_start)
                wanted.append(OffsetRange(partition, start, max(start, bounds.end)))
        more = find_gaps(readable, within=wanted)
        if more:
            asked.tell(
                f"{self.name}: reads {count_offsets(more):,} offsets more, for other records of keys that differ"
            )
        for portion in self._portions(more):
            records, _ = self._decode(portion, tally, is_judged=False)
            judge.see(records, judge.group(records))
            if not judge.is_waiting:
                return

    def _portions(self, ranges: Sequence[OffsetRange]) -> Iterator[pa.RecordBatch]:
        parts: list[pa.RecordBatch] = []
        records = size_bytes = 0
        for each in self.read(ranges) if ranges else ():
            parts.append(each)
            records, size_bytes = records + each.num_rows, size_bytes + each.nbytes
            if records >= self.portion_records or size_bytes >= PORTION_BYTES:
                yield pa.concat_batches(parts)
                parts, records, size_bytes = [], 0, 0
        if records:
            yield pa.concat_batches(parts)

    def _decode(
        self, portion: pa.RecordBatch, tally: _KindCounter, *, is_judged: bool
    ) -> tuple[KeyedRecords, list[pa.StringArray]]:
        """Return the records that have a key, in the order of their offsets, and what the table is asked for them."""
        decoded = self.decoder.decode(portion)
        batch = pa.concat_batches([pa.RecordBatch.from_pylist([], self.decoder.schema), *decoded.rows])
        # Tombstones are decoded behind the others.
        lanes, offsets = tally.find_lanes(batch, "_")
        order = np.lexsort((offsets, lanes))
        batch, lanes, offsets = batch.take(pa.array(order)), lanes[order], offsets[order]
        deletes = np.zeros(batch.num_rows, bool)
        if DELETED_COLUMN in batch.schema.names:
            deletes = batch[DELETED_COLUMN].to_numpy(zero_copy_only=False)
        texts = [self.rows.write(name, batch[name]) for name in self.rows.rule.needed]
        is_fit = self._find_fit(batch, texts, deletes)
        if is_judged:
            if decoded.set_aside is not None:
                tally.refuse(*tally.find_lanes(decoded.set_aside), decoded.set_aside["error"][0].as_py())
            if decoded.skipped is not None:
                tally.add(HELD, *tally.find_lanes(decoded.skipped))
            if not is_fit.all():
                why = f"{', '.join(self.rows.rule.needed)}: one is null, or {self.name} cannot hold it"
                tally.refuse(lanes[~is_fit], offsets[~is_fit], why)
        fit = pa.array(is_fit)
        texts = [each.filter(fit) for each in texts]
        keys = texts[: len(self.rows.rule.key)]
        joined = keys[0] if len(keys) == 1 else pc.binary_join_element_wise(*keys, SEPARATOR)
        return KeyedRecords(lanes[is_fit], offsets[is_fit], joined, deletes[is_fit]), texts

    def _find_fit(self, batch: pa.RecordBatch, texts: Sequence[pa.StringArray], deletes: Flags) -> Flags:
        """Return which records have a key that the table can hold, and something to compare."""
        is_fit = np.ones(batch.num_rows, bool)
        for name, each in zip(self.rows.rule.needed, texts, strict=True):
            is_there = each.is_valid().to_numpy(zero_copy_only=False)
            if name in self.rows.rule.key:
                is_fit &= is_there
            elif name == self.rows.rule.version:
                is_fit &= is_there | deletes
            else:
                # A null is a value, too; what the column cannot hold is none.
                is_fit &= is_there | batch[name].is_null().to_numpy(zero_copy_only=False)
        return is_fit
