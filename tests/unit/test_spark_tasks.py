"""What the reading tasks witness, without Spark: runs of offsets, and records set aside. And when a worker ends."""

import faulthandler
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from threading import Event
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchledger.formats.decoding.decoder import RecordDecoder
from batchledger.formats.decoding.surviving import BoundedDecoder
from batchledger.formats.records import QUARANTINE_SCHEMA, RECORD_SCHEMA
from batchledger.model.offsets import OffsetRange, TopicPartition, count_offsets, merge_ranges
from batchledger.model.records.columns import parse_columns
from batchledger.model.records.rules import TombstonePolicy, UnknownFieldPolicy
from batchledger.model.records.unknown_fields import Sighting, UnknownFieldCounter, UnknownFields, sum_up
from batchledger.source.spark.tasks import DividedRead, ReadTask, Witness, find_runs

VALUE_BY_FATE = {"good": b'{"number":1}', "strange": b'{"number":1,"other":2}', "bad": b"{", "skipped": None}


def records_of(offsets: Sequence[int], fates: Sequence[str] = (), partition: int = 0) -> pa.RecordBatch:
    place = {"topic": "orders", "partition": partition, "timestamp_ms": 0, "key": None, "headers": None}
    values = [VALUE_BY_FATE[each] for each in fates] or [b"{}"] * len(offsets)
    rows = [{**place, "offset": each, "value": value} for each, value in zip(offsets, values, strict=True)]
    return pa.RecordBatch.from_pylist(rows, schema=RECORD_SCHEMA)


def runs_of(offsets: Sequence[int]) -> list[OffsetRange]:
    records = records_of(offsets)
    return find_runs(records["topic"], records["partition"], records["offset"])


@dataclass
class Heard:
    """The Testimony port, which keeps what it hears."""

    aside: list[int] = field(default_factory=list)
    visible: Sequence[OffsetRange] = ()
    tombstones: Sequence[OffsetRange] = ()
    unknown: UnknownFieldCounter | None = None

    def set_aside(self, records: pa.RecordBatch) -> None:
        assert records.schema == QUARANTINE_SCHEMA
        self.aside += records["offset"].to_pylist()

    def finish(
        self,
        visible: Sequence[OffsetRange],
        tombstones: Sequence[OffsetRange] = (),
        unknown: UnknownFieldCounter | None = None,
    ) -> None:
        self.visible, self.tombstones, self.unknown = visible, tombstones, unknown


def test_neighbouring_offsets_are_one_run() -> None:
    partition = TopicPartition("orders", 0)
    assert runs_of([4, 5, 6, 9]) == [OffsetRange(partition, 4, 7), OffsetRange(partition, 9, 10)]
    assert runs_of([]) == []


@given(st.lists(st.integers(0, 60)))
def test_runs_hold_exactly_the_offsets_that_were_seen_in_any_order_and_however_often(offsets: list[int]) -> None:
    merged = merge_ranges(runs_of(offsets))
    assert {offset for run in merged for offset in range(run.start, run.until)} == set(offsets)
    assert count_offsets(merged) == len(set(offsets))


def test_runs_never_cross_a_partition() -> None:
    table = pa.Table.from_batches([records_of([1, 2]), records_of([3, 4], partition=1)]).combine_chunks()
    (batch,) = table.to_batches()
    runs = find_runs(batch["topic"], batch["partition"], batch["offset"])
    assert [str(run) for run in runs] == ["orders[0] 1..3", "orders[1] 3..5"]


@given(st.lists(st.lists(st.sampled_from(list(VALUE_BY_FATE)), max_size=20), max_size=3))
def test_every_record_is_passed_on_set_aside_or_skipped_and_all_are_witnessed(batches: list[list[str]]) -> None:
    """S119."""
    heard, passed = Heard(), []
    decoder = RecordDecoder(parse_columns("number int"), TombstonePolicy.SKIP, unknown_fields=UnknownFieldPolicy.WARN)
    witness = Witness(BoundedDecoder(decoder), heard)
    seen: list[str] = []
    for fates in batches:
        for rows in witness.decode(records_of(range(len(seen), len(seen) + len(fates)), fates)):
            passed += rows["_offset"].to_pylist()
        seen += fates
        # What is set aside is written while the reading goes on.
        assert heard.aside == places_of(seen, "bad")
    witness.finish()
    assert sorted(passed) == sorted(places_of(seen, "good") + places_of(seen, "strange"))
    strange = places_of(seen, "strange")
    assert heard.unknown is not None
    found = sum_up(heard.unknown.records, heard.unknown.list_first())
    expected = {"other": Sighting(len(strange), ("orders", 0, strange[0]))} if strange else {}
    assert found == UnknownFields(len(strange), expected)
    assert offsets_of(heard.visible) == list(range(len(seen)))
    assert offsets_of(heard.tombstones) == places_of(seen, "skipped")


def places_of(fates: Sequence[str], wanted: str) -> list[int]:
    return [place for place, fate in enumerate(fates) if fate == wanted]


def offsets_of(ranges: Sequence[OffsetRange]) -> list[int]:
    return [offset for each in ranges for offset in range(each.start, each.until)]


def exit_code_of(act: Callable[[], object]) -> int:
    """How a worker that does this ends: 0 by itself, and -14 if nothing else has ended it for long."""
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(30)
        act()
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def read(share: Callable[[], Iterator[pa.RecordBatch]], step_seconds: float) -> int:
    """Let a task read the share, and return the number of its rows."""
    evidence: Any = SimpleNamespace(open=lambda _: nullcontext(Heard()))
    decoder = RecordDecoder(parse_columns("number bigint"), TombstonePolicy.SKIP)
    reading = DividedRead([share], BoundedDecoder(decoder), evidence, step_seconds)
    return sum(rows.num_rows for rows in ReadTask(reading)([pa.record_batch({"id": [0]})]))


def test_task_that_makes_no_step_ends_its_process() -> None:
    def stand_still() -> Iterator[pa.RecordBatch]:
        yield records_of([1], ["good"])
        Event().wait()

    assert exit_code_of(lambda: read(stand_still, step_seconds=0.1)) == 1


@pytest.mark.parametrize(("fate", "rows", "steps"), [("good", 3, 7), ("skipped", 0, 4), ("bad", 0, 4)])
def test_bound_is_of_each_step_and_ends_with_the_task(
    fate: str, rows: int, steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A block of records is a step even if no row comes of it."""
    calls: list[object] = []
    monkeypatch.setattr(faulthandler, "dump_traceback_later", lambda seconds, **more: calls.append((seconds, more)))
    monkeypatch.setattr(faulthandler, "cancel_dump_traceback_later", lambda: calls.append("over"))
    assert read(lambda: iter([records_of([each], [fate]) for each in range(3)]), step_seconds=9) == rows
    assert calls == [(9, {"exit": True})] * steps + ["over"]
