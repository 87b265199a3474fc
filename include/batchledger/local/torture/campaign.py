"""Rounds on a running rig: write, strike, heal, drain, compare."""

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import chain

from confluent_kafka import KafkaException
from tenacity import retry, retry_if_exception_type, stop_after_delay, wait_fixed

from batchledger.local.stack.defaults import LAKE_CONNECTION
from batchledger.local.torture.checker import (
    Differences,
    LakeReader,
    LogReader,
    OutputReader,
    Row,
    compare,
    read_output,
    read_quarantine,
    read_target,
)
from batchledger.local.torture.excuses import find_unexplained
from batchledger.local.torture.faults import Subject, Tormentor
from batchledger.local.torture.producer import Journal, Writer, new_topic_name, write_all
from batchledger.local.torture.rig import LAKE_NAMESPACE, Rig, output_topic
from batchledger.local.torture.sabotage import overlaps_allowed
from batchledger.local.torture.schedule import (
    EXACTLY_ONCE,
    FIRST_PARTITIONS,
    Fault,
    Protection,
    Round,
    SinkKind,
    plan_warm_up,
)
from batchledger.local.torture.worker import Crew

ROUNDS_PER_CHECK = 10
DRAIN_ATTEMPTS = 6
_NOTHING = Differences(0, 0)


@dataclass(frozen=True)
class RoundResult:
    """What one round did. ``missed`` faults came too late for their worker.

    ``stuck`` says why nothing moves any more. ``drain_errors`` are errors of workers after everything was healed; a
    later worker got through. ``unexplained`` are new differences of kinds that the mode allows, but that no fault
    explains, by kind. ``differences_by_mode`` is filled now and then, for all modes.
    """

    round: Round
    struck: tuple[Fault, ...]
    missed: tuple[Fault, ...]
    batches: int
    seconds: float
    stuck: str | None = None
    drain_errors: tuple[str, ...] = ()
    unexplained: Mapping[str, Sequence[str]] = field(default_factory=dict)
    differences_by_mode: Mapping[str, Differences] = field(default_factory=dict)


@dataclass
class Campaign:
    """One run of rounds over new pipelines, one for each mode."""

    rig: Rig
    tormentor: Tormentor
    journal: Journal
    sink: SinkKind = SinkKind.POSTGRES
    subject_by_mode: dict[str, Subject] = field(default_factory=dict)
    _known_by_mode: dict[str, Differences] = field(default_factory=dict)

    @classmethod
    def prepare(
        cls, rig: Rig, crew: Crew, without: Protection | None = None, sink: SinkKind = SinkKind.POSTGRES
    ) -> "Campaign":
        """A campaign that has not begun."""
        tormentor = Tormentor(rig, crew, sink=sink, without=without)
        return cls(rig, tormentor, Journal(rig.home.local / "journal.jsonl"), sink)

    def run(self, rounds: Sequence[Round]) -> Iterator[RoundResult]:
        """Run a warm-up in each mode, then the rounds; if a pipeline is stuck, its mode is left out from then on."""
        airflow_rounds = [each.number for each in rounds if each.needs_airflow]
        modes = tuple(dict.fromkeys(each.mode for each in rounds))
        stuck: set[str] = set()
        with ExitStack() as campaign, ExitStack() as airflow:
            for mode in modes:
                subject = self.subject_by_mode[mode] = self._create(mode)
                campaign.enter_context(overlaps_allowed(self.tormentor.without, self.rig.owner_dsn, subject.name))
            for each in chain(map(plan_warm_up, modes), rounds):
                if each.number in airflow_rounds[:1]:
                    self.tormentor.airflow = airflow.enter_context(self.rig.airflow())
                if each.mode not in stuck:
                    result = self._run_round(each)
                    if result.stuck:
                        stuck.add(each.mode)
                    yield result
                if each.number in airflow_rounds[-1:]:
                    self.tormentor.airflow = None
                    airflow.close()

    def compare_all(self) -> dict[str, Differences]:
        """Let the checker compare every pipeline's log with its target."""
        return {mode: self._compare(subject) for mode, subject in self.subject_by_mode.items()}

    def _create(self, mode: str) -> Subject:
        name, options = new_topic_name(mode), self.rig.kafka_options
        self.rig.create_pipeline(name, mode, FIRST_PARTITIONS, self.sink)
        return Subject(
            name=name,
            mode=mode,
            partitions=FIRST_PARTITIONS,
            writer=Writer("writer", name, options, self.journal),
            companion=Writer("companion", name, options, self.journal),
            holder=Writer("holder", name, options, self.journal),
            log=LogReader(options, name),
            read_rows=self._choose_reader(name),
        )

    def _choose_reader(self, name: str) -> Callable[[], Sequence[Row]]:
        match self.sink:
            case SinkKind.POSTGRES:
                return partial(read_target, self.rig.dsn, name)
            case SinkKind.KAFKA:
                return partial(read_output, OutputReader(self.rig.kafka_options, output_topic(name)))
            case SinkKind.ICEBERG:
                return LakeReader(LAKE_CONNECTION, self.rig.lake_properties, (LAKE_NAMESPACE, name)).read

    def _run_round(self, round_: Round) -> RoundResult:
        subject, started = self.subject_by_mode[round_.mode], time.monotonic()
        published = self.rig.count_batches(subject.name)
        struck: list[Fault] = []
        missed: list[Fault] = []
        with _meanwhile(subject, round_):
            write_all(subject.writer, round_.before, subject.partitions)
            for number, fault in enumerate(round_.faults):
                self.rig.say(f"round {round_.number}: {fault}")
                if number > 0:
                    # Otherwise the worker of a second fault might have nothing left to do.
                    write_all(subject.writer, round_.before, subject.partitions)
                (struck if self.tormentor.strike(fault, subject) else missed).append(fault)
        self.rig.say(f"round {round_.number}: healing and draining")
        errors = self._drain(subject)
        stuck = errors[-1] if len(errors) == DRAIN_ATTEMPTS else None
        is_check_due = round_.number > 0 and round_.number % ROUNDS_PER_CHECK == 0
        return RoundResult(
            round=round_,
            struck=tuple(struck),
            missed=tuple(missed),
            batches=self.rig.count_batches(subject.name) - published,
            seconds=time.monotonic() - started,
            stuck=stuck,
            drain_errors=() if stuck else tuple(errors),
            unexplained={} if stuck else self._find_unexplained(subject, struck),
            differences_by_mode=self.compare_all() if is_check_due else {},
        )

    def _drain(self, subject: Subject) -> list[str]:
        """Run batches until nothing is left; return the errors of workers that failed."""
        self.rig.start_missing()
        _settle(subject)
        errors: list[str] = []
        while len(errors) < DRAIN_ATTEMPTS:
            worker = self.tormentor.start(subject)
            self.tormentor.finish(worker)
            if worker.ending is not None and worker.ending.error is None:
                break
            errors.append((worker.ending and worker.ending.error) or "the worker did not end")
            time.sleep(0.5)
        return errors

    def _find_unexplained(self, subject: Subject, struck: Sequence[Fault]) -> Mapping[str, Sequence[str]]:
        if subject.mode == EXACTLY_ONCE:
            return {}
        before = self._known_by_mode.get(subject.mode, _NOTHING)
        after = self._known_by_mode[subject.mode] = self._compare(subject)
        return find_unexplained(subject.mode, before, after, struck, self.sink)

    def _compare(self, subject: Subject) -> Differences:
        self.rig.say(f"comparing log and target of {subject.name}")
        subject.log.read()
        rows = subject.read_rows()
        acknowledged, failed = self.journal.acknowledged(subject.name), self.journal.failed(subject.name)
        return compare(
            subject.name,
            subject.log.records,
            rows,
            acknowledged,
            failed=failed,
            poison=subject.log.poison,
            set_aside=read_quarantine(self.rig.dsn, subject.name),
        )


@contextmanager
def _meanwhile(subject: Subject, round_: Round) -> Iterator[None]:
    """Write the second part of the round's records while the block runs."""
    arguments = (subject.companion, round_.meanwhile, subject.partitions)
    thread = threading.Thread(target=write_all, args=arguments, name="writer", daemon=True)
    thread.start()
    try:
        yield
    finally:
        thread.join()


@retry(retry=retry_if_exception_type(KafkaException), stop=stop_after_delay(90), wait=wait_fixed(0.5), reraise=True)
def _settle(subject: Subject) -> None:
    for writer in (subject.writer, subject.companion, subject.holder):
        writer.settle()
    subject.log.wait_until_decided()
