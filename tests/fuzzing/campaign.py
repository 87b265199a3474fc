"""Decodes made values in processes of its own, and finds each value that a decoder does not stand.

A forked process walks through the numbers of values. It writes each number down before it decodes that value, so its
death names the value, and another process goes on behind it. The same seed and number make the same value.
"""

import faulthandler
import mmap
import os
import resource
import signal
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import NamedTuple, NoReturn
from unittest.mock import patch

import numpy as np
import pyarrow as pa

from batchledger.formats.arrow_types import arrow_schema
from batchledger.formats.decoding.avro.decoder import AvroDecoder
from batchledger.formats.decoding.blocks import BlockDecoder
from batchledger.formats.decoding.surviving import BOUNDS
from batchledger.model.records.columns import Column
from tests.fuzzing import values
from tests.fuzzing.subjects import Record, Subject, batch_of

CPU_SECONDS, CPU_SECONDS_BY_MEGABYTE = 3, 6
"""What a value may take to be decoded five times: alone, by the strict readers, and beside two others."""
_BESIDE_OTHERS = 3
"""One in so many values is decoded beside others as well."""


class Finding(NamedTuple):
    """A value that a decoder does not stand, by its number, and how that shows."""

    number: int
    subject: str
    how: str
    record: Record


class Outcome(NamedTuple):
    """What became of a record: why it was set aside, or its row."""

    offset: int
    error: str | None
    row: str


@dataclass
class Campaign:
    """Values by their numbers, for each of the subjects in turn.

    ``counts`` has for each subject how many values became a row, how many were set aside, and the most microseconds of
    CPU that one took.
    """

    subjects: Sequence[Subject]
    seed: int
    counts: np.ndarray = field(init=False)
    _number: np.ndarray = field(init=False)
    _good: dict[str, Record] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        # Shared with the processes that are forked: it outlives them.
        shared = np.frombuffer(mmap.mmap(-1, 8 * (1 + 3 * len(self.subjects))), np.int64)
        self._number, self.counts = shared[:1], shared[1:].reshape(-1, 3)

    def look(self, numbers: range) -> Iterator[Finding]:
        """Yield a finding for each value that ends, stalls or fills its process, or is not decoded as promised."""
        while numbers:
            reading, writing = os.pipe()
            child = os.fork()
            if child == 0:
                self._walk(numbers, writing)
            os.close(writing)
            with open(reading, encoding="utf-8") as lines:
                for line in lines:
                    number, _, how = line.rstrip("\n").partition(" ")
                    yield self._name(int(number), how)
            _, status = os.waitpid(child, 0)
            if status == 0:
                return
            died_at = int(self._number[0])
            yield self._name(died_at, f"ends the process by {_explain(status)}")
            numbers = range(died_at + 1, numbers.stop)

    def _name(self, number: int, how: str) -> Finding:
        subject, record = self._make(number)
        return Finding(number, subject.name, how, record)

    def _make(self, number: int) -> tuple[Subject, Record]:
        subject = self.subjects[number % len(self.subjects)]
        return subject, subject.make(Random(f"{self.seed} {number}"))  # noqa: S311

    def _walk(self, numbers: range, writing: int) -> NoReturn:
        """Decode the values, and end this process."""
        try:
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            resource.setrlimit(resource.RLIMIT_AS, (_address_space() + BOUNDS.memory_bytes, resource.RLIM_INFINITY))
            faulthandler.disable()
            signal.signal(signal.SIGPROF, signal.SIG_DFL)
            with open(writing, "w", encoding="utf-8", buffering=1) as lines:
                for number in numbers:
                    self._number[0] = number
                    lines.writelines(f"{number} {how}\n" for how in self._judge(number))
            os._exit(0)
        finally:
            os._exit(1)

    def _judge(self, number: int) -> Iterator[str]:
        """Yield what is wrong with how the value is decoded."""
        subject, record = self._make(number)
        megabytes = sum(len(each) for each in record.values() if each is not None) / values.MEGABYTE
        signal.setitimer(signal.ITIMER_PROF, CPU_SECONDS + CPU_SECONDS_BY_MEGABYTE * megabytes)
        before = time.process_time()
        try:
            alone = _outcomes(subject, [record])
            micros = int((time.process_time() - before) * 1e6)
            if [offset for offset, _, _ in alone] != [0]:
                yield f"becomes {len(alone)} rows and records that are set aside"
                return
            counts = self.counts[number % len(self.subjects)]
            counts[int(alone[0].error is not None)] += 1
            counts[2] = max(counts[2], micros)
            yield from self._compare(subject, record, alone[0], number)
        except Exception as error:  # noqa: BLE001 -- It looks for them.
            yield f"ends with {type(error).__name__}: {ascii(str(error))[:200]}"
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)

    def _compare(self, subject: Subject, record: Record, alone: Outcome, number: int) -> Iterator[str]:
        """Yield where the record is read otherwise than alone: by the strict readers, and beside others."""
        strict_only = {"_decode_side_by_side": _nothing_side_by_side}
        with patch.object(BlockDecoder, "decode", _no_block), patch.multiple(AvroDecoder, **strict_only):
            if _outcomes(subject, [record]) != [alone]:
                yield "is read otherwise by the strict readers"
        if alone.error is None:
            self._good[subject.name] = record
        neighbour = self._good.get(subject.name)
        if neighbour is not None and number % _BESIDE_OTHERS == 0:
            among = _outcomes(subject, [neighbour, record, neighbour])
            if [each.offset for each in among] != [0, 1, 2] or among[1]._replace(offset=0) != alone:
                yield "is read otherwise beside other records"


def _outcomes(subject: Subject, records: Sequence[Record]) -> list[Outcome]:
    """Return what becomes of each record, in their order."""
    decoded = subject.decoder.decode(batch_of(records))
    aside = [] if decoded.set_aside is None else decoded.set_aside.to_pylist()
    found = [Outcome(each["offset"], each["error"], "") for each in aside]
    for rows in decoded.rows:
        found += [Outcome(each.pop("_offset"), None, repr(each)) for each in rows.to_pylist()]
    return sorted(found, key=lambda each: each.offset)


def _no_block(decoder: BlockDecoder, values: pa.BinaryArray) -> tuple[pa.RecordBatch, np.ndarray, np.ndarray]:
    """Stand for the decoder of blocks: all is left to the reader of single records."""
    return _no_rows(decoder.columns), np.zeros(len(values), bool), np.zeros(0, bool)


def _nothing_side_by_side(decoder: AvroDecoder, values: pa.BinaryArray) -> tuple[pa.RecordBatch, np.ndarray]:
    """Stand for reading side by side: all is left to the reference."""
    return _no_rows(decoder.columns), np.zeros(len(values), bool)


def _no_rows(columns: tuple[Column, ...]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([], schema=arrow_schema(columns))


def _address_space() -> int:
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[0]) * resource.getpagesize()


def _explain(status: int) -> str:
    return signal.Signals(os.WTERMSIG(status)).name if os.WIFSIGNALED(status) else f"exit code {status >> 8}"
