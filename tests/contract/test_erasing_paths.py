"""Erased stays erased: whatever is read again after an erasure, in whichever way, ends in the same rows."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest

from batchledger.formats.records import QUARANTINE_SCHEMA
from batchledger.model.batch import Batch, Decision, Lane, RecordOrigin, Staged
from batchledger.model.checks import FailedRecord
from batchledger.model.erasure import ErasureKey
from batchledger.model.offsets import OffsetRange
from batchledger.model.records.rules import Upsert
from batchledger.planning.live import Plan
from tests.contract import life
from tests.contract.decided import BY_ANA, assert_proved, rewind
from tests.contract.life import ORDERS_0
from tests.contract.messages import BY_ID
from tests.contract.warehouses import Warehouse
from tests.fakes.work import ROW_SCHEMA

SCHEMA = pa.schema([*ROW_SCHEMA, pa.field("car", pa.string()), pa.field("person", pa.string())])
LOG = (
    ("m0", "car1", "bob"),
    ("m1", "car1", "anna"),
    ("m1", "car3", "carl"),
    ("m2", "car2", "anna"),
    ("m2", "car2", "dora"),
    ("m4", "car5", "anna"),
    ("m5", "car6", "anna"),
    ("m1", "car4", "emil"),
)

pytestmark = pytest.mark.rules
"""Message, car and driver. Anna is the last driver of car1, and was one of car2; others repeat her messages."""
BROKEN, REFUSED = 5, 6
"""Two records of hers that did not decode at first: from the first one nothing can be read, from the other her name."""
OF_ANNA = {1, 3, BROKEN, REFUSED}
READ_BEFORE = OffsetRange(ORDERS_0, 0, 7)
EVERYTHING = OffsetRange(ORDERS_0, 0, 8)
MODES: dict[str, tuple[dict[str, Any], list[int]]] = {
    "append": ({}, [0, 2, 4, 7]),
    "upsert": ({"upsert": Upsert(("car",))}, [2, 4, 7]),
    "dedupe": ({"deduplication": BY_ID}, [0, 7]),
}


@dataclass
class Drives:
    """The log in a pipeline. No row can be made of ``undecodable`` offsets; a check refuses rows of ``odd`` ones."""

    warehouse: Warehouse
    undecodable: frozenset[int] = frozenset({BROKEN, REFUSED})
    odd: frozenset[int] = frozenset()
    schema: pa.Schema = SCHEMA
    runs: int = 0
    checked: int = 0

    def live(self, *ranges: OffsetRange) -> None:
        self._publish(life.store(self.warehouse, *ranges, run=self._next_run()))

    def replay(self, *ranges: OffsetRange) -> None:
        self._publish(life.store_replay(self.warehouse, *ranges, run=self._next_run()))

    def replay_all_twice(self) -> None:
        for _ in range(2):
            self.replay(EVERYTHING)

    def replay_quarantine(self, range_: OffsetRange) -> None:
        plan = Plan((range_,), 0, lane=Lane.REPLAY, origin=RecordOrigin.QUARANTINE)
        run = self._next_run()
        self._publish(self.warehouse.ledger.store_replay(self.warehouse.pipeline, plan, run, Decision("ana", "r"), run))

    def rewind(self, *, truncate: bool) -> None:
        rewind(self.warehouse, {ORDERS_0: 0}, truncate=truncate)
        self.live(EVERYTHING)

    def erase(self) -> None:
        key, sink = ErasureKey.parse(["person=anna"]), self.warehouse.sink
        self.warehouse.decisions.erase(self.warehouse.pipeline, key, BY_ANA, lambda access: sink.erase(access, key))

    def offsets(self) -> list[int]:
        return [offset for _, offset in life.target_coordinates(self.warehouse)]

    def quarantined(self) -> dict[int, bytes | None]:
        return {offset: value for _, offset, value in self.warehouse.read_quarantine()}

    def _publish(self, batch: Batch) -> None:
        attempt = self.warehouse.ledger.open_attempt(batch.batch_id, self._next_run())
        read = [offset for _, offset in life.rows_of(batch.ranges)]
        aside = [_set_aside(each) for each in read if each in self.undecodable]
        quarantined = pa.RecordBatch.from_pylist(aside, schema=QUARANTINE_SCHEMA)
        life.witness(self.warehouse.evidence.open(attempt), 0, batch.ranges, quarantined)
        rows = [_row(each) for each in read if each not in self.undecodable]
        staged = pa.RecordBatch.from_pylist(rows, schema=self.schema)
        life.write(self.warehouse.sink.open_staging(attempt, self.schema), 0, staged)
        self.warehouse.sink.seal_staging(attempt, [0])
        self.warehouse.ledger.mark_staged(attempt, Staged(staged.num_rows, row_rules="the present ones"))
        with life.open_rows(self.warehouse, attempt) as shown:
            self.checked = shown.checked
        if failed := [FailedRecord(ORDERS_0, each, ("odd",)) for each in read if each in self.odd]:
            records = pa.Table.from_pylist([_set_aside(each.offset) for each in failed], schema=QUARANTINE_SCHEMA)
            self.warehouse.evidence.set_aside(attempt, failed, records)
            self.warehouse.sink.remove_staged(attempt, [each.range for each in failed])
        life.audit(self.warehouse, attempt)
        life.publish(self.warehouse, attempt)
        assert_proved(self.warehouse)

    def _next_run(self) -> str:
        self.runs += 1
        return f"run-{self.runs}"


def _row(offset: int) -> dict[str, Any]:
    place = {"_topic": "orders", "_partition": 0, "_offset": offset, "_timestamp": life.NOW}
    return place | dict(zip(("message_id", "car", "person"), LOG[offset], strict=True))


def _set_aside(offset: int) -> dict[str, Any]:
    (record,) = life.quarantine_of([(ORDERS_0, offset)]).to_pylist()
    name = LOG[offset][2].encode()
    return {**record, "value": b'{"person": "' + name + (b"" if offset == BROKEN else b'", "amount": "?"}')}


def read_parts(drives: Drives) -> None:
    drives.replay(OffsetRange(ORDERS_0, 0, 2))
    for each in (1, 2, 3, 4, 6, 0):
        drives.replay(OffsetRange(ORDERS_0, each, each + 1))


PATHS: dict[str, Callable[[Drives], None]] = {
    "live": lambda _: None,
    "replay of parts": read_parts,
    "replay of all": lambda drives: drives.replay(EVERYTHING),
    "replay of all, twice": lambda drives: drives.replay_all_twice(),
    "rewind": lambda drives: drives.rewind(truncate=False),
    "truncate": lambda drives: drives.rewind(truncate=True),
    "quarantine replay": lambda drives: drives.replay_quarantine(OffsetRange(ORDERS_0, BROKEN, BROKEN + 1)),
}


@pytest.mark.parametrize("decodes", [True, False], ids=["decodes", "decodes no longer"])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("path", PATHS)
def test_rows_are_the_same_after_an_erasure_whatever_is_read_again(
    warehouse: Warehouse, path: str, mode: str, decodes: bool
) -> None:
    rules, expected = MODES[mode]
    drives = Drives(warehouse.with_rules(**rules))
    drives.live(READ_BEFORE)
    drives.erase()
    drives.live(OffsetRange(ORDERS_0, READ_BEFORE.until, EVERYTHING.until))
    drives.undecodable = frozenset() if decodes else frozenset(OF_ANNA)
    before = drives.quarantined()
    PATHS[path](drives)
    assert drives.offsets() == expected
    assert {at: value for at, value in drives.quarantined().items() if value is not None}.items() <= before.items()
    assert drives.quarantined().keys() <= {BROKEN, 3 if mode == "upsert" else BROKEN}


def test_what_an_erasure_has_seen_in_quarantine_keeps_its_bytes_when_it_is_read_again(warehouse: Warehouse) -> None:
    """What was a row then may hold the key, and nothing says so: its bytes are in Kafka alone."""
    doras, bobs = 4, 0
    drives = Drives(warehouse, frozenset({doras, BROKEN, REFUSED}))
    drives.live(READ_BEFORE)
    before = drives.quarantined()
    drives.erase()
    drives.undecodable |= {bobs}
    for _ in range(2):
        drives.replay(READ_BEFORE)
        assert drives.quarantined() == {bobs: None, doras: before[doras], BROKEN: before[BROKEN]}


def test_row_that_lost_the_column_of_an_erased_key_is_set_aside_without_its_bytes(warehouse: Warehouse) -> None:
    """It cannot be marked as erased: only a hash of the column is known of its older record."""
    drives = Drives(warehouse.with_rules(upsert=Upsert(("car",))))
    drives.live(READ_BEFORE)
    drives.erase()
    drives.odd, drives.schema = frozenset({3}), SCHEMA.remove(SCHEMA.get_field_index("person"))
    drives.replay(READ_BEFORE)
    assert 3 not in drives.offsets()
    assert drives.quarantined().get(3) is None


def test_no_check_sees_a_row_that_was_erased(warehouse: Warehouse) -> None:
    """Otherwise a check could set it aside, whole."""
    drives = Drives(warehouse)
    drives.live(READ_BEFORE)
    assert drives.checked == 5
    drives.erase()
    drives.undecodable = frozenset()
    drives.replay(READ_BEFORE)
    assert drives.checked == 3


def test_rows_differ_if_the_erasure_is_forgotten(warehouse: Warehouse) -> None:
    """The negative control: what is remembered keeps them away."""
    drives = Drives(warehouse)
    drives.live(READ_BEFORE)
    drives.erase()
    warehouse.forget_erasures()
    drives.undecodable = frozenset()
    drives.replay(READ_BEFORE)
    assert drives.offsets() == [0, 1, 2, 3, 4, 5, 6]
