"""What will be done to the platform, round by round: a pure function of the seed. No I/O, no state.

Each mode draws its faults from a deck of its own and puts none back, so that a long run meets every kind of fault at
every point. About a quarter of the rounds is quiet (S106).
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from typing_extensions import override

from batchledger.local.torture.records import WriteKind

EXACTLY_ONCE, AT_LEAST_ONCE, AT_MOST_ONCE = "exactly_once", "at_least_once", "at_most_once"
MODES = (EXACTLY_ONCE, AT_LEAST_ONCE, AT_MOST_ONCE)

FIRST_PARTITIONS = 2
MOST_PARTITIONS = 6

BETWEEN_COMMITS = "between_commits"
STAGING_POINTS = ("plan_stored", "attempt_opened", "staging_sealed", "staged", "audited")
PUBLISHING_POINTS = ("positions_moved", "rows_moved", "before_commit")
ANNOUNCED, SINK_COMMITTED = "announced", "sink_committed"

ROUNDS_FOR_AIRFLOW = 100
"""From this many rounds on, Airflow takes part; its start takes about a minute."""


PLAN_CHOSEN = "plan_chosen"
"""A point that only the platform without compare-and-swap passes: between choosing a plan and storing it."""


class SinkKind(StrEnum):
    """Where the rows go: into a table of the ledger's database; a topic and an Iceberg table commit by themselves."""

    POSTGRES = "postgres"
    KAFKA = "kafka"
    ICEBERG = "iceberg"


class Protection(StrEnum):
    """A protection that can be switched off, to see that the checker notices.

    FENCING: a process trusts its own memory about who has the batch. Positions are not compared either, overlaps are
    not refused and superseded staging is not dropped, because each of these alone would catch the fault.
    COMPARE_AND_SWAP: positions are overwritten, and overlaps not refused. READ_COMMITTED: aborted records are read.
    ONE_TRANSACTION: rows and position are committed apart.
    """

    FENCING = "fencing"
    COMPARE_AND_SWAP = "compare_and_swap"
    READ_COMMITTED = "read_committed"
    ONE_TRANSACTION = "one_transaction"


class FaultKind(StrEnum):
    """The kinds of faults, by their names in a report."""

    KILL_WORKER = "worker killed"
    KILL_WORKER_AT_RANDOM = "worker killed at random"
    STOP_WORKER = "worker stopped cleanly"
    PAUSE_WORKER = "worker paused, woken later"
    TWO_WORKERS = "two workers at once"
    KILL_SPARK = "Spark server killed"
    RESTART_SPARK = "Spark server restarted"
    KILL_BROKER = "broker killed"
    RESTART_BROKER = "broker restarted"
    CRASH_POSTGRES = "PostgreSQL crashed"
    RESTART_POSTGRES = "PostgreSQL restarted"
    PAUSE_SPARK = "Spark server paused"
    PAUSE_BROKER = "broker paused"
    PAUSE_POSTGRES = "PostgreSQL paused"
    KILL_AIRFLOW_TASK = "Airflow task killed"
    CUT = "connections cut"
    CUT_STREAM = "stream of rows cut"
    DELAY = "connections delayed"
    BLACK_HOLE = "connections black-holed"
    LOSE_COMMIT_REPLY = "COMMIT reply lost"
    COMMIT_LATE = "transaction committed late"
    ABORT_LATE = "transaction aborted late"
    EXPIRE_RECORDS = "records expired"
    ADD_PARTITION = "partition added"
    POISON = "poison records"
    DEADLY_RECORDS = "records that end their decoder"
    CHANGE_SETTINGS = "settings of sessions changed"
    CLOCK_AHEAD = "database clock ahead"
    CLOCK_BEHIND = "database clock behind"


class Way(StrEnum):
    """The two connections that the proxy sits in."""

    KAFKA = "Kafka"
    WAREHOUSE = "PostgreSQL"


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault: ``point`` is where the worker stands when it strikes, ``seconds`` its delay or its duration.

    A stream of rows is cut when so many ``received`` bytes of a task have come.

    For a task of Airflow, ``point`` is the state of its batch. ``successor_point`` is how far the worker that takes
    over gets before a paused one wakes up; empty means to its end.
    """

    kind: FaultKind
    point: str = ""
    seconds: float = 0.0
    way: Way | None = None
    successor_point: str = ""
    received: int = 0

    @override
    def __str__(self) -> str:
        way = f" to {self.way}" if self.way else ""
        point = f" at {self.point}" if self.point else ""
        return f"{self.kind}{way}{point}"


ANOMALY_FAULT = Fault(FaultKind.KILL_WORKER, BETWEEN_COMMITS)
"""Whenever it strikes a batch with rows, a weaker mode shows what it allows."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """Records that the producer writes together."""

    guarantee: WriteKind
    records: int


@dataclass(frozen=True, slots=True)
class Round:
    """One round on the pipeline of one mode. ``before`` is written first, ``meanwhile`` while the faults strike."""

    number: int
    mode: str
    before: tuple[Chunk, ...]
    meanwhile: tuple[Chunk, ...]
    faults: tuple[Fault, ...] = ()

    @property
    def needs_airflow(self) -> bool:
        """Whether Airflow has to run."""
        return any(fault.kind is FaultKind.KILL_AIRFLOW_TASK for fault in self.faults)


def publishing_points(mode: str, sink: SinkKind) -> tuple[str, ...]:
    """Return the points that a batch passes while it is published."""
    between = () if mode == EXACTLY_ONCE else (BETWEEN_COMMITS,)
    if sink is SinkKind.POSTGRES:
        return (*PUBLISHING_POINTS, *between)
    return (*((ANNOUNCED,) if mode == EXACTLY_ONCE else ()), *PUBLISHING_POINTS, *between, SINK_COMMITTED)


def plan_rounds(seed: int, rounds: int, modes: Sequence[str], sink: SinkKind = SinkKind.POSTGRES) -> list[Round]:
    """Return the same rounds for the same arguments, in every process."""
    chance = random.Random(seed)  # noqa: S311 (a schedule, not a secret)
    deck_by_mode = {mode: _draw(mode, chance, sink) for mode in modes}
    airflow_rounds = _choose_airflow_rounds(chance, rounds, len(modes))
    planned = []
    for number in range(1, rounds + 1):
        mode = modes[(number - 1) % len(modes)]
        faults: tuple[Fault, ...]
        if number in airflow_rounds:
            state = chance.choice(("planned", "staged", "audited"))
            faults = (Fault(FaultKind.KILL_AIRFLOW_TASK, state, chance.uniform(0, 0.3)),)
        else:
            faults = next(deck_by_mode[mode])
        planned.append(Round(number, mode, _choose_chunks(chance, 3), _choose_chunks(chance, 2), faults))
    return planned


def plan_warm_up(mode: str) -> Round:
    """Return the round before the first one: no fault strikes, so nothing may be missing in any mode."""
    return Round(0, mode, (Chunk(WriteKind.IDEMPOTENT, 20), Chunk(WriteKind.COMMIT, 20)), ())


def plan_control(seed: int, rounds: int, without: Protection) -> list[Round]:
    """Return rounds of exactly_once in which each meets the fault that the protection stands against."""
    chance = random.Random(seed)  # noqa: S311
    faults: tuple[Fault, ...]
    match without:
        case Protection.FENCING:
            faults = (Fault(FaultKind.PAUSE_WORKER, "audited", successor_point="audited"),)
        case Protection.COMPARE_AND_SWAP:
            faults = (Fault(FaultKind.PAUSE_WORKER, PLAN_CHOSEN),)
        case Protection.READ_COMMITTED:
            faults = ()
        case Protection.ONE_TRANSACTION:
            faults = (Fault(FaultKind.KILL_WORKER, BETWEEN_COMMITS),)
    before = (Chunk(WriteKind.IDEMPOTENT, 30), Chunk(WriteKind.ABORT, 10), Chunk(WriteKind.COMMIT, 30))
    return [Round(number, EXACTLY_ONCE, before, _choose_chunks(chance, 2), faults) for number in range(1, rounds + 1)]


def _choose_airflow_rounds(chance: random.Random, rounds: int, modes: int) -> range:
    """Return one round for each mode, side by side, so that Airflow runs for a short time only."""
    if rounds < ROUNDS_FOR_AIRFLOW:
        return range(0)
    first = chance.randrange(rounds // 4, rounds // 2)
    return range(first, first + modes)


def _choose_chunks(chance: random.Random, most: int) -> tuple[Chunk, ...]:
    """Return chunks; the first is never aborted, so that each round has something to lose."""
    guarantees = (WriteKind.IDEMPOTENT, WriteKind.COMMIT, WriteKind.COMMIT, WriteKind.ABORT)
    chosen = [chance.choice(guarantees[:-1]), *(chance.choice(guarantees) for _ in range(chance.randrange(most)))]
    return tuple(Chunk(guarantee, chance.randrange(1, 60)) for guarantee in chosen)


def _draw(mode: str, chance: random.Random, sink: SinkKind) -> Iterator[tuple[Fault, ...]]:
    """Deal faults for ever. Even short campaigns show the anomaly of a weaker mode, and poison."""
    if mode != EXACTLY_ONCE:
        yield (ANOMALY_FAULT,)
    yield (Fault(FaultKind.POISON),)
    waiting: list[tuple[Fault, ...]] = []
    partitions = FIRST_PARTITIONS
    while True:
        if not waiting:
            waiting = _make_deck(mode, chance, sink)
            if partitions < MOST_PARTITIONS:
                partitions += 1
                waiting.append((Fault(FaultKind.ADD_PARTITION),))
            chance.shuffle(waiting)
        dealt = waiting.pop()
        # Now and then a fault strikes during the recovery from another one.
        if dealt and waiting and chance.random() < 0.25:
            dealt += waiting.pop()
        yield dealt


def _make_deck(mode: str, chance: random.Random, sink: SinkKind) -> list[tuple[Fault, ...]]:
    publishing = publishing_points(mode, sink)
    points = (*STAGING_POINTS, *publishing)
    kinds = FaultKind
    faults = [
        *(Fault(kinds.KILL_WORKER, point) for point in (*points, "committed")),
        *(Fault(kinds.KILL_WORKER_AT_RANDOM, seconds=chance.uniform(0, 1.5)) for _ in range(2)),
        *(Fault(kinds.PAUSE_WORKER, point) for point in (*STAGING_POINTS[1:], chance.choice(publishing))),
        *(
            Fault(kinds.PAUSE_WORKER, chance.choice(STAGING_POINTS), successor_point=point)
            for point in chance.sample(points, 2)
        ),
        *(Fault(kinds.TWO_WORKERS, point) for point in ("plan_stored", "staged")),
        *(Fault(kinds.CRASH_POSTGRES, point) for point in ("staging_sealed", "audited", chance.choice(publishing))),
        Fault(kinds.CRASH_POSTGRES, "attempt_opened", chance.uniform(0, 0.7)),
        Fault(kinds.RESTART_POSTGRES, chance.choice(points)),
        Fault(kinds.KILL_BROKER, "attempt_opened", chance.uniform(0, 0.5)),
        Fault(kinds.RESTART_BROKER, chance.choice(("plan_stored", "committed"))),
        Fault(kinds.RESTART_SPARK, "attempt_opened", chance.uniform(0, 0.7)),
        *(Fault(kinds.STOP_WORKER, point) for point in (chance.choice(STAGING_POINTS), chance.choice(publishing))),
        Fault(kinds.KILL_SPARK, "attempt_opened", chance.uniform(0, 0.7)),
        Fault(kinds.PAUSE_SPARK, "attempt_opened", chance.uniform(0, 0.7)),
        Fault(kinds.PAUSE_BROKER, "attempt_opened", chance.uniform(0, 0.5)),
        Fault(kinds.PAUSE_POSTGRES, chance.choice(points), chance.uniform(0, 0.3)),
        *(Fault(kinds.CUT, "attempt_opened", chance.uniform(0, 0.7), way) for way in Way),
        Fault(kinds.CUT, chance.choice(publishing), way=Way.WAREHOUSE),
        *(Fault(kinds.DELAY, seconds=chance.uniform(0.005, 0.03), way=way) for way in Way),
        *(Fault(kinds.BLACK_HOLE, "attempt_opened", chance.uniform(0, 0.7), way) for way in Way),
        *(Fault(kinds.LOSE_COMMIT_REPLY, point) for point in ("before_commit", chance.choice(publishing))),
        Fault(chance.choice((kinds.COMMIT_LATE, kinds.ABORT_LATE))),
        Fault(kinds.EXPIRE_RECORDS),
        Fault(kinds.POISON),
        Fault(kinds.DEADLY_RECORDS),
        *(Fault(kinds.CHANGE_SETTINGS, point) for point in ("attempt_opened", chance.choice(publishing))),
        Fault(kinds.CLOCK_AHEAD, chance.choice(points)),
        Fault(kinds.CLOCK_BEHIND, chance.choice(points)),
    ]
    if sink is not SinkKind.ICEBERG and mode == EXACTLY_ONCE:
        # From the knock on, through some frames, to the end of a share.
        faults += [Fault(kinds.CUT_STREAM, received=received) for received in (0, *chance.sample(range(1, 2500), 3))]
    if sink is SinkKind.KAFKA:
        # A fault of the broker is as near to the commit as a fault of the database.
        faults += [
            Fault(kinds.KILL_BROKER, chance.choice(publishing)),
            Fault(kinds.RESTART_BROKER, chance.choice(publishing)),
            Fault(kinds.CUT, chance.choice(publishing), chance.uniform(0, 0.3), Way.KAFKA),
            Fault(kinds.BLACK_HOLE, chance.choice(publishing), way=Way.KAFKA),
        ]
    if sink is not SinkKind.POSTGRES:
        faults.append(Fault(kinds.PAUSE_WORKER, SINK_COMMITTED))
    quiet: tuple[Fault, ...] = ()
    return [*((fault,) for fault in faults), *[quiet] * (len(faults) // 3)]
