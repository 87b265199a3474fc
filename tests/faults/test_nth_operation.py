"""Each call of a batch's life to PostgreSQL, Kafka and the Iceberg catalog fails in turn, until none is left to fail.

As SQLite's tests let the first, the second, the n-th allocation fail until a run needs no more. The proof takes a
sample of the places that call. ``make calls`` takes every call, and writes down how many calls a life makes and how
many lives there were.
"""

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count, product

import pytest

from batchledger.lifecycle.platform import Platform
from batchledger.model.batch import DeliveryMode
from batchledger.model.errors import BatchledgerError
from tests.conftest import ROOT, Kafka, open_workplace
from tests.faults.nth_life import SINKS, Alter, Life, Source, as_it_is
from tests.faults.nth_operation import EndlessError, Fault, Faults, Site, System, inject

CALLED = {into: {System.POSTGRES, System.KAFKA} for into in SINKS} | {"lake": set(System)}
LIVES_LONGER = 6
"""So many times the calls of an undisturbed life are enough for one with a fault and all that is tried again."""
IS_EVERY = "BATCHLEDGER_EVERY_CALL" in os.environ
"""Otherwise a sample: one place in ``ONE_IN``, the same ones in each run. Each sink and fault begins at another place.

A place where an answer is lost is one in the code that asks PostgreSQL. The other faults repeat no row, and their place
is a module that calls. A batch that is merged takes the way of one that is appended: in its life they come only for
modules that an appended one does not call.
"""
ONE_IN = 24
COUNTS = ROOT / "docs" / "testing" / "calls.md"


@pytest.fixture(scope="module")
def source(kafka: Kafka, warehouse_dsn: str) -> Iterator[Source]:
    """The records of all lives."""
    with open_workplace(kafka.options, warehouse_dsn) as workplace:
        yield Source.create(workplace)


def note_counts(into: str, fault: Fault, *counts: int) -> None:
    """Put the line of a sink and a fault into the table of the page, instead of its earlier line."""
    head = ["| sink | fault | PostgreSQL calls | Kafka calls | catalog calls | lives |", "|---|---|--:|--:|--:|--:|"]
    key = f"| {into} | {fault} |"
    others = [line for line in COUNTS.read_text().splitlines()[2:] if not line.startswith(key)]
    line = f"{key} {' | '.join(f'{each:,}' for each in counts)} |"
    COUNTS.write_text("\n".join([*head, *sorted([*others, line]), ""]), encoding="utf-8")


@dataclass
class Harness:
    """Lives of batches into one kind of target, each with another call that fails."""

    source: Source
    into: str
    fault: Fault
    monkeypatch: pytest.MonkeyPatch
    alter: Alter = as_it_is
    failed_elsewhere: frozenset[object] = frozenset()
    lives: int = 0

    def live(self, faults: Faults) -> Life:
        """Live one life; everything is exact afterwards."""
        life = Life(self.source.open_pipeline(self.into), faults, self.alter)
        self.lives += 1
        with self.monkeypatch.context() as patched:
            inject(faults, patched)
            life.live()
        life.require_done()
        return life

    def live_undisturbed(self) -> Faults:
        """Live without a fault, and return what was called."""
        faults = Faults(fault=self.fault)
        assert self.live(faults).errors == []
        return faults

    def fail_each(self, undisturbed: Faults, system: System) -> Iterator[str]:
        """Let each call to a system fail in turn, until a life has no such call any more; yield what was wrong.

        Or a sample of the calls.
        """
        sites = undisturbed.sites[system]
        yield from self.fail(undisturbed, system, count(1) if IS_EVERY else self._sample(system, sites))

    def fail(self, undisturbed: Faults, system: System, numbers: Iterable[int]) -> Iterator[str]:
        """Let the calls of these numbers fail, one in each life; yield what was wrong."""
        for number in numbers:
            faults = Faults(system, number, self.fault, most_calls=LIVES_LONGER * undisturbed.made)
            try:
                self.live(faults)
            except (AssertionError, BatchledgerError, EndlessError) as error:
                yield f"call {number} to {system} {self.fault}: {type(error).__name__}: {error}"
            if not faults.injected and number > len(undisturbed.sites[system]):
                return

    def find_places(self, undisturbed: Faults) -> frozenset[object]:
        """Return where a life calls from, as far as it matters to the fault."""
        return frozenset(
            self._find_place(system, number, site)
            for system, sites in undisturbed.sites.items()
            for number, site in enumerate(sites, start=1)
        )

    def _find_place(self, system: System, number: int, site: Site) -> object:
        if self.fault is not Fault.ANSWER_LOST:
            return tuple(file for file, _ in site[:2])
        return site[:2] if system is System.POSTGRES else number

    def _sample(self, system: System, sites: Sequence[Site]) -> Sequence[int]:
        """Return the numbers of the first calls from places that are new, of one place in ``ONE_IN``."""
        first = {
            place: number
            for number, site in reversed(list(enumerate(sites, start=1)))
            if (place := self._find_place(system, number, site)) not in self.failed_elsewhere
        }
        lives = list(product(SINKS, Fault))
        begin = min(ONE_IN, len(first)) * lives.index((self.into, self.fault)) // len(lives)
        return sorted(first.values())[begin::ONE_IN]


@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("fault", Fault)
@pytest.mark.parametrize("into", SINKS)
def test_s54_s65_s96_whichever_call_fails_every_record_arrives_once(
    source: Source, monkeypatch: pytest.MonkeyPatch, into: str, fault: Fault
) -> None:
    """I3, I9: tasks that failed are tried again; while they fail nothing is half visible, and each error has a type."""
    harness = Harness(source, into, fault, monkeypatch)
    undisturbed = harness.live_undisturbed()
    assert {system for system, calls in undisturbed.calls.items() if calls} == CALLED[into]
    if into == "upsert" and fault is not Fault.ANSWER_LOST:
        appended = Harness(source, "table", fault, monkeypatch)
        harness.failed_elsewhere = appended.find_places(appended.live_undisturbed())
        assert not harness.find_places(undisturbed) <= harness.failed_elsewhere
    wrong = [each for system in sorted(CALLED[into]) for each in harness.fail_each(undisturbed, system)]
    if IS_EVERY and not wrong:
        note_counts(into, fault, *(undisturbed.calls[system] for system in System), harness.lives)
    assert wrong == []


def in_two_transactions(platform: Platform) -> Platform:
    """The platform that commits rows and position one after the other."""
    return replace(platform, rules=replace(platform.rules, delivery=DeliveryMode.AT_LEAST_ONCE))


def test_negative_control_rows_and_position_in_two_transactions_are_found(
    source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With I3 switched off, a lost answer leaves rows without their position, or rows twice."""
    harness = Harness(source, "table", Fault.ANSWER_LOST, monkeypatch, in_two_transactions)
    undisturbed = harness.live_undisturbed()
    publishing = [
        number
        for number, site in enumerate(undisturbed.sites[System.POSTGRES], start=1)
        if any(file.endswith("/lifecycle/delivery.py") for file, _ in site)
    ]
    assert any("without the position" in each for each in harness.fail(undisturbed, System.POSTGRES, publishing))


@pytest.mark.always
def test_negative_control_life_without_an_end_is_ended(source: Source, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bound of calls has teeth."""
    with pytest.raises(EndlessError):
        Harness(source, "table", Fault.ONCE, monkeypatch).live(Faults(most_calls=50))
