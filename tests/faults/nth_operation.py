"""The n-th call that leaves the process fails: once, for good, or only its answer is lost.

Calls are counted where the clients meet the network: the exchanges of psycopg, and the requests of confluent-kafka. The
services behind them are real. What SQLAlchemy sends is the Iceberg catalog's.

A record on its way has no call of its own: the client queues it and fetches it in a thread of its own. The calls of
other threads, such as signs of life, are not counted: which number they would have is chance.
"""

import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from functools import wraps
from time import monotonic
from typing import Any, TypeVar

import confluent_kafka
import psycopg
import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from psycopg.abc import PQGen
from psycopg.pq import TransactionStatus
from typing_extensions import override

RV = TypeVar("RV")
Site = tuple[tuple[str, int], ...]

ANSWERS = ("describe_cluster", "describe_topics", "describe_configs", "describe_consumer_groups")
ORDERS = ("create_topics",)
QUESTIONS_OF_CONSUMERS = ("offsets_for_times", "committed")
ORDERS_OF_CONSUMERS = ("commit",)
ORDERS_OF_PRODUCERS = (
    "init_transactions",
    "send_offsets_to_transaction",
    "commit_transaction",
    "abort_transaction",
)


class System(StrEnum):
    """What is called."""

    POSTGRES = "PostgreSQL"
    KAFKA = "Kafka"
    CATALOG = "catalog"


class Fault(StrEnum):
    """What becomes of the n-th call."""

    ONCE = "fails once"
    LASTING = "fails for good"
    ANSWER_LOST = "answer lost"


class EndlessError(BaseException):
    """A life has made many times as many calls as one without a fault. Nothing catches it on the way."""


@dataclass
class Faults:
    """Which call fails, and what was called so far. ``lift`` ends the fault.

    A call counts for ``ANSWER_LOST`` if it may have changed something for good.
    """

    system: System | None = None
    number: int = 0
    fault: Fault = Fault.ONCE
    most_calls: int = 10_000
    made: int = 0
    calls: Counter[System] = field(default_factory=Counter)
    sites: dict[System, list[Site]] = field(default_factory=lambda: {each: [] for each in System})
    injected: int = 0
    waited_seconds: float = 0.0
    is_off: bool = False

    def lift(self) -> None:
        """Let every call from now on be as it is."""
        self.number = 0

    @contextmanager
    def off(self) -> Iterator[None]:
        """Neither count nor fail within the block: an observer looks."""
        self.is_off = True
        try:
            yield
        finally:
            self.is_off = False

    def fails(self, system: System) -> bool:
        """Count a call that begins, and say whether it fails."""
        if self._is_left_out():
            return False
        self.made += 1
        if self.made > self.most_calls:
            raise EndlessError
        if self.fault is Fault.ANSWER_LOST:
            return False
        self._count(system)
        if self.system is not system or not self.number:
            return False
        number = self.calls[system]
        return self._inject(number == self.number or (self.fault is Fault.LASTING and number > self.number))

    def loses_answer(self, system: System) -> bool:
        """Count a call that has changed something, and say whether its answer is lost."""
        if self._is_left_out() or self.fault is not Fault.ANSWER_LOST:
            return False
        self._count(system)
        return self._inject(self.system is system and self.calls[system] == self.number)

    def _inject(self, is_due: bool) -> bool:
        self.injected += is_due
        return is_due

    def _count(self, system: System) -> None:
        self.calls[system] += 1
        self.sites[system].append(_find_site())

    def _is_left_out(self) -> bool:
        return self.is_off or not (
            threading.current_thread() is threading.main_thread()
            or threading.current_thread().name.startswith("ThreadPoolExecutor")
        )

    def clock(self) -> float:
        """The time, as if calls that were not answered had taken as long as they were allowed to."""
        return monotonic() + self.waited_seconds


def _find_site() -> Site:
    """The lines of the platform that a call comes from."""
    found, frame = [], sys._getframe(1)
    while frame is not None:
        if "/batchledger/" in frame.f_code.co_filename:
            found.append((frame.f_code.co_filename, frame.f_lineno))
        frame = frame.f_back  # type: ignore[assignment]
    return tuple(found)


def inject(faults: Faults, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let all clients that are opened from now on ask ``faults`` about each of their calls."""
    monkeypatch.setattr(psycopg, "connect", _connecting(faults))
    for name in (*ANSWERS, *ORDERS):
        monkeypatch.setattr(AdminClient, name, _admin_call(faults, name, getattr(AdminClient, name)))
    clients = {
        confluent_kafka.Consumer: _client(
            faults, confluent_kafka.Consumer, QUESTIONS_OF_CONSUMERS, ORDERS_OF_CONSUMERS
        ),
        confluent_kafka.Producer: _client(faults, confluent_kafka.Producer, (), ORDERS_OF_PRODUCERS),
    }
    for module in [each for name, each in sys.modules.items() if name.startswith("batchledger.source.kafka")]:
        for name, value in list(vars(module).items()):
            if value is monotonic:
                monkeypatch.setattr(module, name, faults.clock)
            elif isinstance(value, type) and value in clients:
                monkeypatch.setattr(module, name, clients[value])


def _connecting(faults: Faults) -> Callable[..., psycopg.Connection[Any]]:
    class Connection(psycopg.Connection[Any]):
        """Each exchange with the server is one call; after a fault the connection is gone, as with a real one."""

        system = System.POSTGRES

        @override
        def wait(self, gen: PQGen[RV], *more: Any, **options: Any) -> RV:
            if faults.fails(self.system):
                gen.close()
                raise self._lose()
            result = super().wait(gen, *more, **options)
            has_ended = self.pgconn.transaction_status == TransactionStatus.IDLE
            if has_ended and faults.loses_answer(self.system):
                raise self._lose()
            return result

        def _lose(self) -> psycopg.OperationalError:
            self.pgconn.finish()
            return psycopg.OperationalError("consuming input failed: server closed the connection unexpectedly")

    class CatalogConnection(Connection):
        system = System.CATALOG

    def connect(*arguments: Any, **options: Any) -> psycopg.Connection[Any]:
        is_catalog = sys._getframe(1).f_globals["__name__"].startswith("sqlalchemy")
        kind = CatalogConnection if is_catalog else Connection
        if faults.fails(kind.system):
            raise psycopg.OperationalError('connection to server at "127.0.0.1" failed: Connection refused')
        return kind.connect(*arguments, **options)

    return connect


def _unanswered(is_retriable: bool) -> KafkaException:
    code = KafkaError._TIMED_OUT if is_retriable else KafkaError._TRANSPORT
    return KafkaException(KafkaError(code, "no answer", retriable=is_retriable))


def _admin_call(faults: Faults, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(real)
    def call(client: AdminClient, *arguments: Any, **options: Any) -> Any:
        if faults.fails(System.KAFKA):
            if name in ORDERS:
                return {each.topic: _failed() for each in arguments[0]}
            return _fail_all(real(client, *arguments, **options))
        answer = real(client, *arguments, **options)
        if name in ORDERS and faults.loses_answer(System.KAFKA):
            for each in answer.values():
                each.result()
            return _fail_all(answer)
        return answer

    return call


def _fail_all(answer: Any) -> Any:
    return dict.fromkeys(answer, _failed()) if isinstance(answer, dict) else _failed()


def _failed() -> "Future[Any]":
    future: Future[Any] = Future()
    future.set_exception(_unanswered(is_retriable=False))
    return future


def _client(faults: Faults, kind: type, questions: tuple[str, ...], orders: tuple[str, ...]) -> type:
    is_producer = kind is confluent_kafka.Producer

    def method(name: str) -> Callable[..., Any]:
        real = getattr(kind, name)

        @wraps(real)
        def call(client: Any, *arguments: Any, **options: Any) -> Any:
            if faults.fails(System.KAFKA):
                if faults.fault is Fault.LASTING:
                    faults.waited_seconds += _patience(arguments, options)
                raise _unanswered(is_producer)
            answer = real(client, *arguments, **options)
            if name in orders and faults.loses_answer(System.KAFKA):
                faults.waited_seconds += _patience(arguments, options)
                raise _unanswered(is_producer)
            return answer

        return call

    return type(kind.__name__, (kind,), {name: method(name) for name in (*questions, *orders)})


def _patience(arguments: tuple[Any, ...], options: dict[str, Any]) -> float:
    """How long a call would have waited for its answer: its last argument."""
    allowed = options.get("timeout", arguments[-1] if arguments else 0)
    return float(allowed) if isinstance(allowed, int | float) else 0.0
