"""Rows lost and doubled when the writing process is killed with SIGKILL three times while it writes.

A process is killed at a random moment after the database has begun to grow, and started again. After the third kill it
runs until everything is there. Then the message ids of table and topic are compared.
"""

import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from threading import Event, Thread
from time import perf_counter

import psycopg

from bench.bench import Bench
from bench.contenders.contender import Contender, Running
from bench.figures import Figure, describe
from bench.orders import Order
from bench.process import ProgramEndedError
from bench.records import Topic
from bench.services import Services
from bench.taking import find_target, new_order
from bench.targets.table import Copies, compare, count_rows, fresh_table

PART = "kills"
KILLS = 3
STARTS_AT_MOST = 5
TRIES_AT_MOST = 8
HASTE = 0.5
ROUNDS_AT_MOST = 3
BATCHES = 4
GROWTH_BYTES = 128 * 1024
SECONDS_BETWEEN_LOOKS = 0.02
SECONDS_UNTIL_GROWTH = 120.0
SIZE = "select pg_current_wal_lsn() - '0/0'::pg_lsn, pg_database_size(current_database())"


def measure(bench: Bench, contenders: Sequence[Contender], topic: Topic, seed: int) -> Iterator[Figure]:
    """Yield the lost and doubled rows of each contender in each round of three kills."""
    chance = random.Random(seed)  # noqa: S311 - moments, not secrets
    bench.say(f"killing at random moments, seed {seed}")
    for contender in contenders:
        # The first time may be slow for a reason that does not come back: Spark's server is cold.
        seconds = min(time_undisturbed(bench, contender, topic) for _ in range(2))
        for _ in range(min(bench.rounds, ROUNDS_AT_MOST)):
            copies = _take_one_round(bench, contender, topic, partial(chance.uniform, 0.0), seconds)
            bench.say(f"{contender.subject.title}, killed {KILLS} times: {tell(copies)}")
            yield from describe(PART, contender.subject.name, kills=KILLS, lost=copies.lost, doubled=copies.doubled)


def tell(copies: Copies) -> str:
    """In words."""
    return f"{copies.lost:,} rows lost, {copies.doubled:,} doubled"


def in_batches(contender: Contender, records: int) -> Contender:
    """Make a batch a part of the topic, so that kills also fall between batches."""
    return contender.with_settings({"max_records": str(-(-records // BATCHES))})


def time_undisturbed(bench: Bench, contender: Contender, topic: Topic) -> float:
    """Return how long a fresh process writes without a kill."""
    order = new_order(contender.subject, topic)
    target = find_target(bench.services, order.sink)
    with target.fresh(order.target), contender.start(bench.services) as running:
        running.prepare(order)
        growth = _Growth(bench.services)
        running.begin(order)
        growth.wait()
        started = perf_counter()
        running.finish()
        return perf_counter() - started


def _take_one_round(
    bench: Bench, contender: Contender, topic: Topic, choose: Callable[[float], float], seconds: float
) -> Copies:
    """Kill three times, then let it end. If a process is done before its kill, begin again with earlier kills."""
    for tries in range(TRIES_AT_MOST):
        order = new_order(contender.subject, topic)
        with fresh_table(bench.services.dsn, order.target):
            if _kill_three_times(bench, contender, order, choose, seconds * HASTE**tries):
                take_to_the_end(bench, contender, order)
                return compare(bench.services.dsn, order.target, topic.records)
    raise RuntimeError(f"{contender.subject.title} was done before each kill, {TRIES_AT_MOST} times")


def _kill_three_times(
    bench: Bench, contender: Contender, order: Order, choose: Callable[[float], float], seconds: float
) -> bool:
    """Kill at random moments of the remaining work; whether every kill has met a process at work."""
    for _ in range(KILLS):
        share_left = max(0.0, 1 - count_rows(bench.services.dsn, order.target) / order.records)
        with contender.start(bench.services) as running:
            running.prepare(order)
            if not kill_while_writing(bench, running, order, choose(seconds * share_left)):
                return False
    return True


def take_to_the_end(bench: Bench, contender: Contender, order: Order) -> None:
    """Start until an order is carried out: the rest of a killed process may fail the first start."""
    for _ in range(STARTS_AT_MOST):
        with contender.start(bench.services) as running, suppress(ProgramEndedError):
            running.prepare(order)
            running.begin(order)
            running.finish()
            return
    raise RuntimeError(f"{contender.subject.title} was not done after {STARTS_AT_MOST} starts")


def kill_while_writing(bench: Bench, running: Running, order: Order, delay: float) -> bool:
    """Kill a process so many seconds after it has begun to write; whether it was still at work."""
    finished = Event()

    def finish() -> None:
        with suppress(ProgramEndedError, OSError):
            running.finish()
            finished.set()

    growth = _Growth(bench.services)
    running.begin(order)
    waiting = Thread(target=finish, daemon=True)
    waiting.start()
    growth.wait(finished)
    time.sleep(delay)
    was_writing = not finished.is_set()
    if was_writing and not waiting.is_alive():
        raise RuntimeError("the process ended by itself before it was killed; its log in .local/bench/log says why")
    running.kill()
    waiting.join()
    return was_writing


class _Growth:
    """Notices writes: the log or a file of the database gets longer, or the lake's files do."""

    def __init__(self, services: Services) -> None:
        self.dsn, self.lake = services.dsn, services.home.lake
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            self.before = self._measure(connection)

    def wait(self, otherwise: Event | None = None) -> None:
        """Return once the database has grown, or the event has happened."""
        deadline = perf_counter() + SECONDS_UNTIL_GROWTH
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            while perf_counter() < deadline and not (otherwise and otherwise.is_set()):
                now = self._measure(connection)
                if any(size - before > GROWTH_BYTES for size, before in zip(now, self.before, strict=True)):
                    return
                time.sleep(SECONDS_BETWEEN_LOOKS)

    def _measure(self, connection: "psycopg.Connection[tuple[object, ...]]") -> tuple[int, int, int]:
        row = connection.execute(SIZE).fetchone() or (0, 0)
        files = [each for each in self.lake.rglob("*.parquet") if each.is_file()]
        return int(str(row[0])), int(str(row[1])), sum(each.stat().st_size for each in files)
