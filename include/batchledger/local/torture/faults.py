"""What each kind of fault does, to which process and when. Each ends with all services running and reachable.

A fault at a point waits until a worker stands there, strikes, and lets the worker go on. This module does not judge the
worker: later, the checker judges log and target.
"""

import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field

from confluent_kafka import KafkaException

from batchledger.local.airflow_api import AirflowApi
from batchledger.local.torture.airflow_task import kill_airflow_task
from batchledger.local.torture.changed_database import change_database
from batchledger.local.torture.checker import LogReader, Row
from batchledger.local.torture.producer import Writer, write_all
from batchledger.local.torture.proxy import Link
from batchledger.local.torture.records import WriteKind
from batchledger.local.torture.rig import Rig
from batchledger.local.torture.schedule import (
    FIRST_PARTITIONS,
    MOST_PARTITIONS,
    PUBLISHING_POINTS,
    Chunk,
    Fault,
    FaultKind,
    Protection,
    SinkKind,
    Way,
)
from batchledger.local.torture.worker import Crew, Order, Worker

GATE_SECONDS = 40.0
END_SECONDS = 75.0
SUCCESSOR_SECONDS = 6.0
HOLE_SECONDS = 2.0
PAUSE_SECONDS = 2.0
STOP_SECONDS = 20.0
HELD_RECORDS = 7
_CHANGES = (FaultKind.CHANGE_SETTINGS, FaultKind.CLOCK_AHEAD, FaultKind.CLOCK_BEHIND)


@dataclass
class Subject:
    """One pipeline under torture. Its topic has its name; ``read_rows`` is what readers of its target see.

    ``writer`` writes between the faults, ``companion`` while they strike, and ``holder`` leaves transactions open.
    """

    name: str
    mode: str
    partitions: int
    writer: Writer
    companion: Writer
    holder: Writer
    log: LogReader
    read_rows: Callable[[], Sequence[Row]]


@dataclass
class Tormentor:
    """Applies faults to a subject. ``surprises`` are endings of workers that should not occur."""

    rig: Rig
    crew: Crew
    airflow: AirflowApi | None = None
    sink: SinkKind = SinkKind.POSTGRES
    without: Protection | None = None
    surprises: list[str] = field(default_factory=list)

    def strike(self, fault: Fault, subject: Subject) -> bool:
        """Apply one fault and wait until its workers have ended; whether it could strike as planned."""
        try:
            return self._strike(fault, subject)
        except KafkaException as error:
            self.surprises.append(f"{subject.name}: {fault} could not be done: {error}")
            return False
        finally:
            self.rig.heal_network()

    def start(
        self, subject: Subject, *gates: str, may_lose_staging: bool = False, cut_after: int | None = None
    ) -> Worker:
        """Let a worker take batches of the subject, as one more run."""
        run, stops = f"torture__{uuid.uuid4().hex[:12]}", tuple(filter(None, gates))
        return self.crew.start(Order(subject.name, run, stops, self.without, may_lose_staging, cut_after=cut_after))

    def finish(self, worker: Worker) -> None:
        """Let a worker run to its end."""
        if not worker.wait_for_end(END_SECONDS):
            worker.kill()
            self.surprises.append(f"{worker.order.pipeline}: a worker did not end within {END_SECONDS:.0f} s")
        elif worker.ending is None or not worker.ending.is_expected:
            error = worker.ending.error if worker.ending else "it died"
            self.surprises.append(f"{worker.order.pipeline}: {error}")

    def _strike(self, fault: Fault, subject: Subject) -> bool:
        link = self.rig.link_by_way[fault.way or Way.WAREHOUSE]
        disturbance_by_kind: Mapping[FaultKind, Callable[[], bool | threading.Event]] = {
            FaultKind.KILL_SPARK: lambda: self._kill_and_start("spark"),
            FaultKind.KILL_BROKER: lambda: self._kill_and_start("kafka"),
            FaultKind.CRASH_POSTGRES: lambda: self._kill_and_start("postgres"),
            FaultKind.RESTART_SPARK: lambda: self.rig.restart("spark"),
            FaultKind.RESTART_BROKER: lambda: self.rig.restart("kafka"),
            FaultKind.RESTART_POSTGRES: lambda: self.rig.restart("postgres"),
            FaultKind.PAUSE_SPARK: lambda: self.rig.pause("spark", PAUSE_SECONDS),
            FaultKind.PAUSE_BROKER: lambda: self.rig.pause("kafka", PAUSE_SECONDS),
            FaultKind.PAUSE_POSTGRES: lambda: self.rig.pause("postgres", PAUSE_SECONDS),
            FaultKind.CUT: lambda: link.cut() > 0,
            FaultKind.BLACK_HOLE: lambda: _black_hole(link),
            FaultKind.LOSE_COMMIT_REPLY: link.lose_next_commit_reply,
        }
        if fault.kind in disturbance_by_kind:
            return self._disturb(fault, subject, disturbance_by_kind[fault.kind])
        act_by_kind: Mapping[FaultKind, Callable[[Fault, Subject], bool]] = {
            FaultKind.KILL_WORKER: self._kill,
            FaultKind.KILL_WORKER_AT_RANDOM: self._kill,
            FaultKind.STOP_WORKER: self._kill,
            FaultKind.PAUSE_WORKER: self._pause,
            FaultKind.TWO_WORKERS: self._run_two,
            FaultKind.DELAY: self._delay,
            FaultKind.CUT_STREAM: self._cut_stream,
            FaultKind.KILL_AIRFLOW_TASK: self._kill_airflow_task,
            FaultKind.COMMIT_LATE: self._hold_transaction,
            FaultKind.ABORT_LATE: self._hold_transaction,
            FaultKind.EXPIRE_RECORDS: self._expire,
            FaultKind.ADD_PARTITION: self._add_partition,
            FaultKind.POISON: self._poison,
            FaultKind.DEADLY_RECORDS: self._end_decoders,
            **dict.fromkeys(_CHANGES, self._change_database),
        }
        return act_by_kind[fault.kind](fault, subject)

    def _kill(self, fault: Fault, subject: Subject) -> bool:
        worker = self.start(subject, fault.point)
        can_strike = not fault.point or worker.wait_for_gate(GATE_SECONDS)
        if can_strike:
            time.sleep(fault.seconds)
        if not (can_strike and worker.is_alive):
            self.finish(worker)
            return False
        if fault.kind is FaultKind.STOP_WORKER and worker.stop(STOP_SECONDS):
            return True
        worker.kill()
        return fault.kind is not FaultKind.STOP_WORKER

    def _disturb(self, fault: Fault, subject: Subject, act: Callable[[], bool | threading.Event]) -> bool:
        """Strike while a worker stands at the point, or so many seconds after it has left it.

        If the worker has not reached the point or has ended, nothing is done. An event says later whether it has
        struck.
        """
        worker = self.start(subject, fault.point, may_lose_staging=fault.kind is FaultKind.CRASH_POSTGRES)
        can_strike = worker.wait_for_gate(GATE_SECONDS)
        if can_strike and fault.seconds:
            worker.go_on()
            time.sleep(fault.seconds)
        has_struck = can_strike and worker.is_alive and act()
        worker.go_on()
        self.finish(worker)
        return has_struck.is_set() if isinstance(has_struck, threading.Event) else has_struck

    def _pause(self, fault: Fault, subject: Subject) -> bool:
        """Stop a worker, let another take over, and wake the first one during the other's work or after it."""
        sleeper = self.start(subject, fault.point)
        if not (sleeper.wait_for_gate(GATE_SECONDS) and sleeper.is_alive):
            self.finish(sleeper)
            return False
        sleeper.pause()
        successor = self.start(subject, fault.successor_point)
        # In a transaction the sleeper holds locks that its successor needs. So it wakes before the successor gives up.
        seconds = SUCCESSOR_SECONDS if fault.point in PUBLISHING_POINTS else END_SECONDS
        wait_for_successor = successor.wait_for_gate if fault.successor_point else successor.wait_for_end
        wait_for_successor(seconds)
        sleeper.wake()
        sleeper.go_on()
        self.finish(sleeper)
        successor.go_on()
        self.finish(successor)
        return True

    def _run_two(self, fault: Fault, subject: Subject) -> bool:
        pair = [self.start(subject, fault.point) for _ in range(2)]
        have_reached = [worker.wait_for_gate(GATE_SECONDS) for worker in pair]
        for worker in pair:
            worker.go_on()
        for worker in pair:
            self.finish(worker)
        # If an attempt was opened, one of the two has fenced the other, which ends before this point.
        return any(have_reached)

    def _kill_and_start(self, service: str) -> bool:
        self.rig.kill(service)
        self.rig.start(service)
        return True

    def _delay(self, fault: Fault, subject: Subject) -> bool:
        self.rig.link_by_way[fault.way or Way.WAREHOUSE].delay(fault.seconds)
        self.finish(self.start(subject))
        return True

    def _cut_stream(self, fault: Fault, subject: Subject) -> bool:
        worker = self.start(subject, cut_after=fault.received)
        self.finish(worker)
        return worker.ending is not None and worker.ending.cuts > 0

    def _kill_airflow_task(self, fault: Fault, subject: Subject) -> bool:
        return self.airflow is not None and kill_airflow_task(self.rig, self.airflow, subject.name, fault)

    def _hold_transaction(self, fault: Fault, subject: Subject) -> bool:
        """Publish what lies before an open transaction, while it is open."""
        try:
            reports = subject.holder.begin(HELD_RECORDS, subject.partitions)
        except KafkaException:
            return False
        self.finish(self.start(subject))
        end = WriteKind.COMMIT if fault.kind is FaultKind.COMMIT_LATE else WriteKind.ABORT
        return subject.holder.end(end, reports)

    def _expire(self, _fault: Fault, subject: Subject) -> bool:
        """Remove what is published, once the checker has read it."""
        self.finish(self.start(subject))
        published = self.rig.published_offsets(subject.name)
        subject.log.read()
        self.rig.expire(subject.name, published)
        return bool(published)

    def _poison(self, _fault: Fault, subject: Subject) -> bool:
        """Write records that cannot become rows, and one that the target refuses; then act as the person in charge.

        A refused batch waits: another worker does not try it again. Once the target takes it, the batch goes on.
        """
        self.finish(self.start(subject))
        self.rig.refuse_large_keys(subject.name, self.sink, is_refused=True)
        try:
            has_arrived = subject.writer.write_poison(subject.partitions)
            self.finish(self._start_blocked(subject))
            blocked = self.rig.find_blocked(subject.name)
            self.finish(self._start_blocked(subject))
            if self.rig.find_blocked(subject.name) != blocked:
                self.surprises.append(f"{subject.name}: a batch that its target refuses was tried again: {blocked}")
        finally:
            self.rig.refuse_large_keys(subject.name, self.sink, is_refused=False)
        if blocked is not None:
            self.finish(self._start_blocked(subject, blocked[0]))
        return has_arrived and (blocked is not None or self.sink is SinkKind.ICEBERG)

    def _end_decoders(self, _fault: Fault, subject: Subject) -> bool:
        """Write records that end the process that decodes them; whether each was found and set aside."""
        before = self.rig.count_deaths(subject.name)
        has_arrived = subject.writer.write_deadly(FIRST_PARTITIONS)
        self.finish(self.start(subject))
        return has_arrived and self.rig.count_deaths(subject.name) == before + FIRST_PARTITIONS

    def _change_database(self, fault: Fault, subject: Subject) -> bool:
        """Change the database under a worker, and let another one take a batch from its plan to its end."""
        with ExitStack() as changed:
            change = change_database(self.rig.superuser_dsn, fault.kind)
            if has_struck := self._disturb(fault, subject, lambda: changed.enter_context(change)):
                write_all(subject.writer, [Chunk(WriteKind.IDEMPOTENT, HELD_RECORDS)], subject.partitions)
                self.finish(self.start(subject))
        return has_struck

    def _start_blocked(self, subject: Subject, batch_id: int | None = None) -> Worker:
        """Run a worker that may find its pipeline blocked; it takes ``batch_id`` again."""
        run = f"torture__{uuid.uuid4().hex[:12]}"
        return self.crew.start(Order(subject.name, run, without=self.without, may_be_blocked=True, batch_id=batch_id))

    def _add_partition(self, _fault: Fault, subject: Subject) -> bool:
        if subject.partitions == MOST_PARTITIONS:
            raise ValueError(f"{subject.name} has {MOST_PARTITIONS} partitions, and the schedule would add one more")
        self.rig.add_partition(subject.name, subject.partitions + 1)
        subject.partitions += 1
        self.finish(self.start(subject))
        return True


def _black_hole(link: Link) -> bool:
    """Whether a connection was held up, at once or later."""
    link.black_hole()
    time.sleep(HOLE_SECONDS)
    return link.heal() > 0
