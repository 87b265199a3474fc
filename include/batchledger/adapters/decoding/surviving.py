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
from dataclasses import dataclass, field, replace
from typing import NoReturn

import pyarrow as pa

from batchledger.adapters.decoding.decoder import Decoded, RecordDecoder, refuse_records
from batchledger.model.errors import BatchledgerError, DecoderFailedError, RowsRefusedError

_PARTS = 10
_GIB = 1 << 30


@dataclass(frozen=True)
class DecodingBounds:
    """What decoding one block may take; ``most_deaths`` and ``all_seconds`` are for one share of a read."""

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
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    wanted = pages * resource.getpagesize() + more_bytes
    resource.setrlimit(resource.RLIMIT_AS, (wanted if hard == resource.RLIM_INFINITY else min(wanted, hard), hard))


def _decode_wholly(decoder: RecordDecoder, records: pa.RecordBatch) -> Decoded:
    """Return what becomes of the records, unknown fields included."""
    decoded = decoder.decode(records)
    return replace(decoded, strange=(), undeclared=list(decoder.find_unknown(decoded)))


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
        signal.setitimer(signal.ITIMER_REAL, self.bounds.wall_seconds)
        try:
            return _decode_wholly(self.decoder, records)
        except BatchledgerError:
            raise
        except Exception as error:
            raise DecoderFailedError(f"Decoding ended with {type(error).__name__}.") from error
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            resource.setrlimit(resource.RLIMIT_AS, before)


@dataclass
class SurvivingDecoder:
    """Decodes as ``decoder`` does, whatever a record does to the process; pickled to the executors."""

    decoder: RecordDecoder
    bounds: DecodingBounds = BOUNDS
    deaths: int = field(default=0, init=False)
    began: float | None = field(default=None, init=False)

    def decode(self, records: pa.RecordBatch) -> Decoded:
        """Return what becomes of the records. One that ends its process is set aside, with how that ended.

        Raises RowsRefusedError when its bounds are reached, with the offsets that are left.
        """
        parts = list(self._decode_parts(records))
        if len(parts) == 1:
            return parts[0]
        return Decoded(
            [rows for part in parts for rows in part.rows],
            _join([part.set_aside for part in parts if part.set_aside is not None]),
            _join([part.skipped for part in parts if part.skipped is not None]),
            undeclared=[each for part in parts for each in part.undeclared],
        )

    def _decode_parts(self, records: pa.RecordBatch) -> Iterator[Decoded]:
        outcome = self._decode_apart(records)
        if isinstance(outcome, Decoded):
            yield outcome
            return
        self._require_patience(records)
        if records.num_rows <= 1:
            yield Decoded([], refuse_records(records, [(0, f"decoding it {outcome}")]))
            return
        size = -(-records.num_rows // _PARTS)
        for start in range(0, records.num_rows, size):
            yield from self._decode_parts(records.slice(start, size))

    def _require_patience(self, records: pa.RecordBatch) -> None:
        self.deaths += 1
        self.began = self.began or time.monotonic()
        seconds = time.monotonic() - self.began
        if self.deaths <= self.bounds.most_deaths and seconds <= self.bounds.all_seconds:
            return
        first, last = (records.slice(place, 1).to_pylist()[0] for place in (0, records.num_rows - 1))
        raise RowsRefusedError(
            f"Too many records end the process that decodes them. They were looked for from "
            f"{first['topic']}[{first['partition']}] offset {first['offset']} to "
            f"{last['topic']}[{last['partition']}] offset {last['offset']}. Nothing was published.",
            why=f"A process has died {self.deaths} times in {seconds:.0f} s, of at most "
            f"{self.bounds.most_deaths} times or {self.bounds.all_seconds:.0f} s.",
            advice="Leave these records behind, or let limits.max_records make batches smaller.",
        )

    def _decode_apart(self, records: pa.RecordBatch) -> Decoded | str:
        """Return what a process of its own makes of the records, or how it has ended. Raises its BatchledgerError."""
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
        outcome: Decoded | str | BatchledgerError = pickle.loads(content)  # noqa: S301 -- A fork of this process.
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
            signal.setitimer(signal.ITIMER_REAL, self.bounds.wall_seconds)
            with open(writing, "wb") as file:
                file.write(pickle.dumps(self._try(records)))
            os._exit(0)
        finally:
            os._exit(1)

    def _try(self, records: pa.RecordBatch) -> Decoded | str | BatchledgerError:
        try:
            return _decode_wholly(self.decoder, records)
        except BatchledgerError as error:
            return error
        except MemoryError:
            return f"takes more than {self.bounds.memory_bytes / _GIB:g} GiB of memory"
        except Exception as error:  # noqa: BLE001 -- This process ends with it.
            return f"ends with {type(error).__name__}"

    def _explain(self, status: int) -> str:
        if not os.WIFSIGNALED(status):
            return f"ends the process with exit code {os.waitstatus_to_exitcode(status)}"
        number = os.WTERMSIG(status)
        if number == signal.SIGXCPU:
            return f"takes more than {self.bounds.cpu_seconds} s of CPU"
        if number == signal.SIGALRM:
            return f"makes no progress for {self.bounds.wall_seconds:g} s"
        return f"ends the process by {signal.Signals(number).name}"


def _join(parts: Sequence[pa.RecordBatch]) -> pa.RecordBatch | None:
    return pa.concat_batches(parts) if parts else None
