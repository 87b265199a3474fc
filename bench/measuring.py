"""What a piece of work takes: CPU and memory of every process that takes part, WAL, transactions.

CPU is the difference of what the processes of a tree have used, with those that ended meanwhile if their parent has
waited for them. Spark's daemon waits for none of its Python workers, but ends only those that were idle for a minute.
Memory is looked at while the work is done; the peak of a group is that of its processes together.
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
    """What was used between two moments. Bytes of memory are peaks; a program is for example ``spark_java``.

    ``transactions`` are those that have written anything.
    """

    cpu_seconds_by_group: Mapping[str, float]
    memory_bytes_by_group: Mapping[str, int]
    memory_bytes_by_program: Mapping[str, int]
    wal_bytes: int
    transactions: int

    @property
    def cpu_seconds(self) -> float:
        """Of everyone who took part, the broker and the database included."""
        return sum(self.cpu_seconds_by_group.values())

    @property
    def memory_bytes(self) -> int:
        """Of everything but broker and database, which all contenders share."""
        return sum(most for group, most in self.memory_bytes_by_group.items() if group not in {POSTGRES, KAFKA})


@dataclass
class Meter:
    """Runs while a block runs; ``usage`` is there afterwards."""

    dsn: str = field(repr=False)
    root_by_group: Mapping[str, int]
    usage: Usage | None = None

    def result(self) -> Usage:
        """What the block has used."""
        if self.usage is None:
            raise RuntimeError("the block has not ended yet")
        return self.usage


@dataclass
class Memory:
    """The most that the processes of a group, and those of a program within it, have had at one moment."""

    peak_by_group: dict[str, int] = field(default_factory=dict)
    peak_by_program: dict[str, int] = field(default_factory=dict)

    def watch(self, root_by_group: Mapping[str, int], stopping: threading.Event) -> None:
        """Look again and again, and once more at the end: what is done within a moment is not looked at otherwise."""
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

    A checkpoint of PostgreSQL goes before, so that none is due while the block runs and all begin alike.
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
    """Return a process and all that it has started, those that are left; nothing when it is gone."""
    try:
        root = psutil.Process(pid)
        return [root, *root.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def cpu_by_group(root_by_group: Mapping[str, int]) -> dict[str, float]:
    """Return the CPU seconds that the processes of each group have used so far."""
    return {group: sum(map(_cpu_seconds, list_tree(pid))) for group, pid in root_by_group.items()}


def _cpu_seconds(process: psutil.Process) -> float:
    """What a process has used, and those of its children that it has waited for."""
    try:
        times = process.cpu_times()
    except psutil.Error:
        return 0.0
    children = getattr(times, "children_user", 0.0) + getattr(times, "children_system", 0.0)
    return float(times.user + times.system + children)


def _memory_by_program(group: str, processes: Sequence[psutil.Process]) -> "Counter[str]":
    """Memory of a group. Pages that its processes share are shared out among them, and counted once.

    Of PostgreSQL only what each process has for itself: its buffers fill up over time, whoever writes.
    """
    found: Counter[str] = Counter()
    for process in processes:
        with contextlib.suppress(psutil.Error):
            memory, name = process.memory_full_info(), process.name().rstrip("0123456789.")
            found[f"{group}_{name}"] += memory.uss if group == POSTGRES else getattr(memory, "pss", memory.uss)
    return found


def _positions(connection: "psycopg.Connection[tuple[object, ...]]") -> tuple[int, int]:
    """Where the log ends, and the number of the next transaction that writes; this one takes no number."""
    row = connection.execute(
        "select pg_current_wal_lsn() - '0/0'::pg_lsn, pg_snapshot_xmax(pg_current_snapshot())::text::bigint"
    ).fetchone()
    return (int(str(row[0])), int(str(row[1]))) if row else (0, 0)
