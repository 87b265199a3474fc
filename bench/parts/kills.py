"""Rows lost and doubled when the writing process is killed with SIGKILL three times while it writes.

A process is killed at a random moment after the database has begun to grow, and started again; after the third time
it is left alone until everything is there. Then the message ids of the table are compared with those of the topic.
"""

import random
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from threading import Event, Thread
from time import perf_counter

import psycopg

from bench.bench import Bench
from bench.contenders.contender import Contender, Running
from bench.figures import Figure, describe
from bench.orders import Order
from bench.process import ProgramEndedError
from bench.records import Topic
from bench.taking import new_order
from bench.target import Copies, compare, fresh_table

PART = "kills"
KILLS = 3
STARTS_AT_MOST = 12
ROUNDS_AT_MOST = 3
BATCHES = 4
GROWTH_BYTES = 128 * 1024
SECONDS_BETWEEN_LOOKS = 0.02
SECONDS_UNTIL_GROWTH = 120.0
SIZE = "select pg_current_wal_lsn() - '0/0'::pg_lsn, pg_database_size(current_database())"


def measure(bench: Bench, contenders: Sequence[Contender], topic: Topic, seed: int) -> Iterator[Figure]:
    """Yield how many rows every contender has lost and doubled in each round of three kills."""
    chance = random.Random(seed)  # noqa: S311 - moments, not secrets
    bench.say(f"killing at random moments, seed {seed}")
    for contender in contenders:
        seconds = _time_undisturbed(bench, contender, topic)
        for _ in range(min(bench.rounds, ROUNDS_AT_MOST)):
            order = new_order(contender.subject, topic)
            with fresh_table(bench.services.dsn, order.table):
                delays = [chance.uniform(0, seconds / KILLS) for _ in range(KILLS)]
                killed = _take_with_kills(bench, contender, order, delays)
                copies = compare(bench.services.dsn, order.table, topic.records)
            bench.say(f"{contender.subject.title}, killed {killed} times: {tell(copies)}")
            yield from describe(PART, contender.subject.name, kills=killed, lost=copies.lost, doubled=copies.doubled)


def tell(copies: Copies) -> str:
    """In words."""
    return f"{copies.lost:,} rows lost, {copies.doubled:,} doubled"


def in_batches(contender: Contender, records: int) -> Contender:
    """Let a batch be a part of the topic, so that there is something to kill between batches too."""
    settings = {**contender.subject.settings, "max_records": str(-(-records // BATCHES))}
    return replace(contender, subject=replace(contender.subject, settings=settings))


def _time_undisturbed(bench: Bench, contender: Contender, topic: Topic) -> float:
    """How long a fresh process writes when nobody kills it."""
    order = new_order(contender.subject, topic)
    with fresh_table(bench.services.dsn, order.table), contender.start(bench.services) as running:
        running.prepare(order)
        growth = _Growth(bench.services.dsn)
        running.begin(order)
        growth.wait()
        started = perf_counter()
        running.finish()
        return perf_counter() - started


def _take_with_kills(bench: Bench, contender: Contender, order: Order, delays: Sequence[float]) -> int:
    """Start again and again until everything is there; return how many kills have met a process that wrote."""
    pending, killed = list(delays), 0
    for _ in range(STARTS_AT_MOST):
        with contender.start(bench.services) as running:
            running.prepare(order)
            if pending:
                killed += _kill_while_writing(bench, running, order, pending.pop())
                continue
            with suppress(ProgramEndedError):
                running.begin(order)
                running.finish()
                return killed
    raise RuntimeError(f"{contender.subject.title} was not done after {STARTS_AT_MOST} starts")


def _kill_while_writing(bench: Bench, running: Running, order: Order, delay: float) -> bool:
    """Kill a process so long after it has begun to write; whether it had not finished by then."""
    finished = Event()

    def finish() -> None:
        with suppress(ProgramEndedError, OSError):
            running.finish()
            finished.set()

    growth = _Growth(bench.services.dsn)
    running.begin(order)
    waiting = Thread(target=finish, daemon=True)
    waiting.start()
    growth.wait(finished)
    time.sleep(delay)
    was_writing = not finished.is_set()
    running.kill()
    waiting.join()
    return was_writing


class _Growth:
    """Notices that somebody writes: the log or a file of the database gets longer."""

    def __init__(self, dsn: str) -> None:
        self.dsn = dsn
        with psycopg.connect(dsn, autocommit=True) as connection:
            self.before = self._measure(connection)

    def wait(self, otherwise: Event | None = None) -> None:
        """Return when the database has grown since, or when the event has happened."""
        deadline = perf_counter() + SECONDS_UNTIL_GROWTH
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            while perf_counter() < deadline and not (otherwise and otherwise.is_set()):
                log, size = self._measure(connection)
                if log - self.before[0] > GROWTH_BYTES or size - self.before[1] > GROWTH_BYTES:
                    return
                time.sleep(SECONDS_BETWEEN_LOOKS)

    @staticmethod
    def _measure(connection: "psycopg.Connection[tuple[object, ...]]") -> tuple[int, int]:
        row = connection.execute(SIZE).fetchone()
        return (int(str(row[0])), int(str(row[1]))) if row else (0, 0)
