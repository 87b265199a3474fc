"""Decodes blocks in processes of their own, so that a record that ends its process is found and set aside.

A library may die of a record, take all memory, or never come back. The worker that only waits for such a process stays.
A block whose process has died is divided until single records are left. This is slow, so it is done only after a worker
has died, and its bounds say how long it may take.

The process is a fork of the worker. Nothing else runs Python or Arrow there meanwhile; the threads of Kafka's client
are not in it.
"""

import faulthandler
import os
import pickle
import resource
import signal
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, NoReturn

import pyarrow as pa

from batchledger.bounds.alarm import ALARM, STEPS
from batchledger.bounds.process_limits import limit_process
from batchledger.formats.decoding.decoder import Decoded, RecordDecoder, refuse_records
from batchledger.model.errors import BatchledgerError, DecoderFailedError, RowsRefusedError, StagingError

_PARTS = 10
_GIB = 1 << 30


@dataclass(frozen=True)
class DecodingBounds:
    """What decoding one block may take; ``most_deaths`` and ``all_seconds`` of search are for one task."""

    cpu_seconds: int = 30
    wall_seconds: float = 120
    memory_bytes: int = 4 * _GIB
    most_deaths: int = 1_000
    all_seconds: float = 1_800


BOUNDS = DecodingBounds()


def _limit_memory(more_bytes: int) -> None:
    """Bound what this process may have more than it has now."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            pages = int(file.read().split()[0])
    except FileNotFoundError:
        # Only Linux says how much that is.
        return
    limit_process(resource.RLIMIT_AS, pages * resource.getpagesize() + more_bytes)


@dataclass(frozen=True)
class BoundedDecoder:
    """Decodes as ``decoder`` does, within bounds that the kernel keeps; pickled to the executors."""

    decoder: RecordDecoder
    bounds: DecodingBounds = BOUNDS

    def decode(self, records: pa.RecordBatch) -> Decoded:
        """Return what becomes of the records. SIGALRM ends this process if that takes too long.

        Raises DecoderFailedError for whatever is raised and is no error of ours, a lack of memory included.
        """
        before = resource.getrlimit(resource.RLIMIT_AS)
        _limit_memory(self.bounds.memory_bytes)
        try:
            with ALARM.after(self.bounds.wall_seconds):
                return self.decoder.decode(records)
        except BatchledgerError:
            raise
        except Exception as error:
            raise DecoderFailedError(f"Decoding ended with {type(error).__name__}.") from error
        finally:
            resource.setrlimit(resource.RLIMIT_AS, before)


class _Ended(NamedTuple):
    """How decoding has ended a process; ``is_late`` if all its time was over."""

    how: str
    is_late: bool = False


@dataclass
class SurvivingDecoder:
    """Decodes as ``decoder`` does, whatever a record does to the process; pickled to the executors."""

    decoder: RecordDecoder
    bounds: DecodingBounds = BOUNDS
    deaths: int = field(default=0, init=False)
    searched_seconds: float = field(default=0, init=False)
    _began: float = field(default=0, init=False)

    def decode(self, records: pa.RecordBatch) -> Decoded:
        """Return what becomes of the records. One that ends its process is set aside, with how that ended.

        Raises RowsRefusedError when its bounds are reached, with the offsets that are left; StagingError if processes
        end without a record.
        """
        # Nothing bounds the wait for a registry here, and all processes inherit what was found.
        self.decoder.prepare(records)
        outcome = self._decode_apart(records)
        if isinstance(outcome, Decoded):
            return outcome
        self._began = time.monotonic() - self.searched_seconds
        parts = list(self._decode_parts(records, outcome))
        self.searched_seconds = time.monotonic() - self._began
        return Decoded(
            [rows for part in parts for rows in part.rows],
            _join([part.set_aside for part in parts if part.set_aside is not None]),
            _join([part.skipped for part in parts if part.skipped is not None]),
            undeclared=[each for part in parts for each in part.undeclared],
        )

    def _decode_parts(self, records: pa.RecordBatch, ended: _Ended) -> Iterator[Decoded]:
        """Yield what becomes of parts of records that have ended a process."""
        self._require_patience(records)
        if records.num_rows <= 1:
            yield self._judge(records, ended)
            return
        size = -(-records.num_rows // _PARTS)
        for start in range(0, records.num_rows, size):
            part = records.slice(start, size)
            outcome = self._decode_apart(part)
            if isinstance(outcome, Decoded):
                yield outcome
            else:
                yield from self._decode_parts(part, outcome)

    def _judge(self, record: pa.RecordBatch, ended: _Ended) -> Decoded:
        """Return what becomes of a record that has ended its process, perhaps because the machine did.

        It is set aside if decoding nothing ends well, and if it ends a process again; that is not asked of a record
        that takes all its time. Raises StagingError.
        """
        control = self._decode_apart(record.slice(0, 0))
        if isinstance(control, _Ended):
            raise StagingError(
                "Records cannot be decoded in processes of their own. Nothing is visible.",
                why=f"Such a process ends without a record as well. Decoding nothing {control.how}.",
                advice="The next attempt reads the same ranges again. See whether the workers have the memory that "
                "they need, and what ends their processes.",
            )
        again = ended if ended.is_late else self._decode_apart(record)
        if isinstance(again, Decoded):
            return again
        return Decoded([], refuse_records(record, [(0, f"decoding it {again.how}")]))

    def _require_patience(self, records: pa.RecordBatch) -> None:
        self.deaths += 1
        seconds = time.monotonic() - self._began
        if self.deaths <= self.bounds.most_deaths and seconds <= self.bounds.all_seconds:
            return
        first, last = (records.slice(place, 1).to_pylist()[0] for place in (0, records.num_rows - 1))
        raise RowsRefusedError(
            f"Too many records end the process that decodes them. They were looked for from "
            f"{first['topic']}[{first['partition']}] offset {first['offset']} to "
            f"{last['topic']}[{last['partition']}] offset {last['offset']}. Nothing was published.",
            why=f"A process has died {self.deaths} times in {seconds:.0f} s of search, of at most "
            f"{self.bounds.most_deaths} times or {self.bounds.all_seconds:.0f} s.",
            advice="Leave these records behind, or let limits.max_records make batches smaller.",
        )

    def _decode_apart(self, records: pa.RecordBatch) -> Decoded | _Ended:
        """Return what a process of its own makes of the records, or how it has ended. Raises its BatchledgerError."""
        STEPS.made()
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            self._answer(records, writing)
        os.close(writing)
        with open(reading, "rb") as file:
            content = file.read()
        _, status = os.waitpid(child, 0)
        if status != 0:
            return self._explain(status)
        outcome: Decoded | _Ended | BatchledgerError = pickle.loads(content)  # noqa: S301 -- A fork of this process.
        if isinstance(outcome, BatchledgerError):
            raise outcome
        return outcome

    def _answer(self, records: pa.RecordBatch, writing: int) -> NoReturn:
        """Write the outcome, and end this process."""
        try:
            # Neither a core nor a trace of each death.
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            faulthandler.disable()
            resource.setrlimit(resource.RLIMIT_CPU, (self.bounds.cpu_seconds, self.bounds.cpu_seconds + 1))
            _limit_memory(self.bounds.memory_bytes)
            # The kernel ends it, also when the worker does not wait for it any more.
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            with ALARM.after(self.bounds.wall_seconds), open(writing, "wb") as file:
                file.write(pickle.dumps(self._try(records)))
            os._exit(0)
        finally:
            os._exit(1)

    def _try(self, records: pa.RecordBatch) -> Decoded | _Ended | BatchledgerError:
        try:
            return self.decoder.decode(records)
        except BatchledgerError as error:
            return error
        except MemoryError:
            return _Ended(f"takes more than {self.bounds.memory_bytes / _GIB:g} GiB of memory")
        except Exception as error:  # noqa: BLE001 -- This process ends with it.
            if isinstance(error, OSError) and error.errno is not None:
                return _blame_machine(error.errno)
            return _Ended(f"ends with {type(error).__name__}")

    def _explain(self, status: int) -> _Ended:
        if not os.WIFSIGNALED(status):
            return _Ended(f"ends the process with exit code {os.waitstatus_to_exitcode(status)}")
        number = os.WTERMSIG(status)
        if number == signal.SIGXCPU:
            return _Ended(f"takes more than {self.bounds.cpu_seconds} s of CPU", is_late=True)
        if number == signal.SIGALRM:
            return _Ended(f"makes no progress for {self.bounds.wall_seconds:g} s", is_late=True)
        return _Ended(f"ends the process by {signal.Signals(number).name}")


def _blame_machine(number: int) -> StagingError:
    return StagingError(
        "Records could not be decoded. Nothing is visible.",
        why=f"The system has refused something to the worker: {os.strerror(number)}.",
        advice="The next attempt reads the same ranges again. See whether the workers have the memory and the open "
        "files that they need.",
    )


def _join(parts: Sequence[pa.RecordBatch]) -> pa.RecordBatch | None:
    return pa.concat_batches(parts) if parts else None
