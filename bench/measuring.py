"""What work costs: CPU and memory of every process that takes part, WAL, transactions.

CPU is what the processes of a tree have used. A process that ended meanwhile counts if its parent has waited for it.
Spark's daemon never waits for its Python workers, but it only ends workers that were idle for a minute. Memory is
sampled during the work; the peak of a group is the peak of the sum of its processes.
"""

import contextlib
import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import psutil
import psycopg

SECONDS_BETWEEN_LOOKS = 0.5
POSTGRES = "postgres"
KAFKA = "kafka"


@dataclass(frozen=True)
class Usage:
    """The use between two moments. Bytes of memory are peaks; a program is for example ``spark_java``.

    ``transactions`` counts the transactions that have written anything.
    """

    cpu_seconds_by_group: Mapping[str, float]
    memory_bytes_by_group: Mapping[str, int]
    memory_bytes_by_program: Mapping[str, int]
    wal_bytes: int
    transactions: int

    @property
    def cpu_seconds(self) -> float:
        """CPU seconds of all that took part, broker and database included."""
        return sum(self.cpu_seconds_by_group.values())

    @property
    def memory_bytes(self) -> int:
        """CPU seconds without broker and database, which all contenders share."""
        return sum(most for group, most in self.memory_bytes_by_group.items() if group not in {POSTGRES, KAFKA})


@dataclass
class Meter:
    """Measures while a block runs; ``usage`` is set afterwards."""

    dsn: str = field(repr=False)
    root_by_group: Mapping[str, int]
    usage: Usage | None = None

    def result(self) -> Usage:
        """The use of the block."""
        if self.usage is None:
            raise RuntimeError("the block has not ended yet")
        return self.usage


@dataclass
class Memory:
    """The largest memory that a group, and each program within it, has had at one moment."""

    peak_by_group: dict[str, int] = field(default_factory=dict)
    peak_by_program: dict[str, int] = field(default_factory=dict)

    def watch(self, root_by_group: Mapping[str, int], stopping: threading.Event) -> None:
        """Look again and again, and once more at the end. Otherwise very short work is never looked at."""
        has_stopped = False
        while not has_stopped:
            has_stopped = stopping.wait(SECONDS_BETWEEN_LOOKS)
            for group, pid in root_by_group.items():
                found = _memory_by_program(group, list_tree(pid))
                self.peak_by_group[group] = max(self.peak_by_group.get(group, 0), found.total())
                for program, used in found.items():
                    self.peak_by_program[program] = max(self.peak_by_program.get(program, 0), used)


@contextmanager
def measure(dsn: str, root_by_group: Mapping[str, int]) -> Iterator[Meter]:
    """Measure the block. ``root_by_group`` names the first process of each group; its descendants belong to it.

    PostgreSQL makes a checkpoint first, so that none is due while the block runs.
    """
    meter = Meter(dsn, root_by_group)
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("checkpoint")
        memory, stopping = Memory(), threading.Event()
        watcher = threading.Thread(target=memory.watch, args=(root_by_group, stopping), daemon=True)
        before, (wal, transaction) = cpu_by_group(root_by_group), _positions(connection)
        watcher.start()
        try:
            yield meter
        finally:
            stopping.set()
            watcher.join()
        after = cpu_by_group(root_by_group)
        cpu = {group: after[group] - before[group] for group in root_by_group}
        wal_now, transaction_now = _positions(connection)
        meter.usage = Usage(
            cpu,
            memory.peak_by_group,
            memory.peak_by_program,
            wal_bytes=wal_now - wal,
            transactions=transaction_now - transaction,
        )


def list_tree(pid: int) -> list[psutil.Process]:
    """Return a process and its living descendants; empty if it is gone."""
    try:
        root = psutil.Process(pid)
        return [root, *root.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def cpu_by_group(root_by_group: Mapping[str, int]) -> dict[str, float]:
    """Return the CPU seconds that the processes of each group have used so far."""
    return {group: sum(map(_cpu_seconds, list_tree(pid))) for group, pid in root_by_group.items()}


def _cpu_seconds(process: psutil.Process) -> float:
    """The CPU of a process, and of the children that it has waited for."""
    try:
        times = process.cpu_times()
    except psutil.Error:
        return 0.0
    children = getattr(times, "children_user", 0.0) + getattr(times, "children_system", 0.0)
    return float(times.user + times.system + children)


def _memory_by_program(group: str, processes: Sequence[psutil.Process]) -> "Counter[str]":
    """Return the memory of a group. Pages that its processes share are counted once.

    PostgreSQL counts with its private memory only: its buffers fill up over time, however much is written.
    """
    found: Counter[str] = Counter()
    for process in processes:
        with contextlib.suppress(psutil.Error):
            memory, name = process.memory_full_info(), process.name().rstrip("0123456789.")
            found[f"{group}_{name}"] += memory.uss if group == POSTGRES else getattr(memory, "pss", memory.uss)
    return found


def _positions(connection: "psycopg.Connection[tuple[object, ...]]") -> tuple[int, int]:
    """Return the end of the WAL, and the number of the next transaction that writes. This query takes no number."""
    row = connection.execute(
        "select pg_current_wal_lsn() - '0/0'::pg_lsn, pg_snapshot_xmax(pg_current_snapshot())::text::bigint"
    ).fetchone()
    return (int(str(row[0])), int(str(row[1]))) if row else (0, 0)
