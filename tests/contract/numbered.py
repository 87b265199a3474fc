"""A topic whose producers number their records, and what batches of it find."""

from dataclasses import dataclass

import pyarrow as pa

from batchledger.model.batch import Attempt
from batchledger.model.checks import FailedRecord, IntegrityCheck
from batchledger.model.offsets import OffsetRange, TopicPartition
from batchledger.model.records.numbering import NumberFacts
from batchledger.model.records.rules import SequenceRule
from tests.contract import life
from tests.contract.warehouses import Warehouse
from tests.fakes.work import ROW_SCHEMA

SCHEMA = ROW_SCHEMA.append(pa.field("device", pa.string())).append(pa.field("seq", pa.int64()))
BY_DEVICE = SequenceRule(("device",), "seq")
FROM_ONE = SequenceRule(("device",), "seq", starts_at=1)


@dataclass
class Numbered:
    """Batches over ``orders``: every record is a device's letter and a number, ``a1``; ``-`` stands for a null.

    One that ends in ``!`` does not pass a check and is set aside.
    """

    warehouse: Warehouse
    runs: int = 0

    def stage(self, **records: str) -> Attempt:
        """Stage the next records: ``p0="a1 a2"`` are two of partition 0."""
        self.runs += 1
        run, positions = f"run-{self.runs}", life.next_offsets(self.warehouse)
        rows, ranges, aside = [], [], []
        for name, text in records.items():
            partition, words = TopicPartition("orders", int(name[1:])), text.split()
            start = positions.get(partition, 0)
            ranges.append(OffsetRange(partition, start, start + len(words)))
            rows += [_row(partition, start + index, word.rstrip("!")) for index, word in enumerate(words)]
            aside += [FailedRecord(partition, start + at, ("odd",)) for at, word in enumerate(words) if "!" in word]
        batch = life.store(self.warehouse, *ranges, run=run)
        attempt = life.stage(self.warehouse, batch, run, rows=pa.RecordBatch.from_pylist(rows, schema=SCHEMA))
        if aside:
            records = life.quarantine_of((each.partition, each.offset) for each in aside)
            self.warehouse.evidence.set_aside(attempt, aside, records)
            self.warehouse.sink.remove_staged(attempt, [each.range for each in aside])
        return attempt

    def take(self, **records: str) -> NumberFacts:
        """Take the next records through the whole life, whatever is wrong with their numbers; return what is."""
        attempt = self.stage(**records)
        found = self.count(attempt)
        life.audit(self.warehouse, attempt)
        life.publish(self.warehouse, attempt)
        return found

    def count(self, attempt: Attempt) -> NumberFacts:
        """What the audit judges."""
        found = life.count_numbers(self.warehouse, attempt)
        assert found is not None
        return found

    def name(self, attempt: Attempt, limit: int = 20) -> tuple[list[str], list[str]]:
        """The records beside new gaps, and those that repeat a number."""
        found = self.warehouse.sink.find_offenders(attempt, IntegrityCheck, limit)
        missing, repeated = (
            found[each] for each in (IntegrityCheck.NO_MISSING_NUMBERS, IntegrityCheck.NO_REPEATED_NUMBERS)
        )
        return [str(each) for each in missing], [str(each) for each in repeated]


def _row(partition: TopicPartition, offset: int, word: str) -> dict[str, object]:
    device, number = word[0], word[1:]
    return {
        "_topic": partition.topic,
        "_partition": partition.partition,
        "_offset": offset,
        "_timestamp": life.NOW,
        "message_id": word,
        "device": None if device == "-" else device,
        "seq": int(number) if number else None,
    }
