"""A record that ends the process of its decoder is set aside with its coordinates; its neighbours become rows."""

import faulthandler
import os
import signal
from dataclasses import replace

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batchledger.adapters.decoding.decoder import Decoded, RecordDecoder
from batchledger.adapters.decoding.record_schema import RECORD_SCHEMA
from batchledger.adapters.decoding.surviving import BoundedDecoder, DecodingBounds, SurvivingDecoder
from batchledger.model.errors import DecoderFailedError, RowsRefusedError, ServiceUnavailableError
from batchledger.model.records.columns import parse_columns
from batchledger.model.records.rules import TombstonePolicy, UnknownFieldPolicy
from tests.deadly import GREED, KILL, RAISE, SEGFAULT, STALL, WAIT, DeadlyDecoder

BOUNDS = DecodingBounds(cpu_seconds=1, wall_seconds=60)
DEADLY = DeadlyDecoder(
    parse_columns("id bigint, name string"), TombstonePolicy.SKIP, unknown_fields=UnknownFieldPolicy.WARN
)


def records_of(*values: bytes | None) -> pa.RecordBatch:
    place = {"topic": "orders", "partition": 3, "timestamp_ms": 0, "key": None, "headers": None}
    rows = [{**place, "offset": 100 + offset, "value": value} for offset, value in enumerate(values)]
    return pa.RecordBatch.from_pylist(rows, schema=RECORD_SCHEMA)


def rows_of(decoded: Decoded) -> list[int]:
    return [offset for rows in decoded.rows for offset in rows["_offset"].to_pylist()]


def aside(decoded: Decoded) -> dict[int, str]:
    found = [] if decoded.set_aside is None else decoded.set_aside.to_pylist()
    assert {(each["topic"], each["partition"]) for each in found} <= {("orders", 3)}
    return {each["offset"]: each["error"] for each in found}


@pytest.mark.parametrize(
    ("marker", "told"),
    [
        (SEGFAULT, "decoding it ends the process by SIGSEGV"),
        (KILL, "decoding it ends the process by SIGKILL"),
        (STALL, "decoding it takes more than 1 s of CPU"),
        (GREED, "decoding it takes more than 4 GiB of memory"),
        (RAISE, "decoding it ends with LookupError"),
    ],
)
def test_record_that_ends_its_process_is_set_aside_and_says_how(marker: bytes, told: str) -> None:
    values: list[bytes | None] = [b'{"id":1}'] * 300
    values[123] = b'{"name":"%s"}' % marker
    values[200] = b"{"
    values[201] = None
    values[202] = b'{"id":2,"more":1}'
    records = records_of(*values)
    decoded = SurvivingDecoder(DEADLY, BOUNDS).decode(records)
    assert aside(decoded) == {223: told, 300: "the value is not exactly one JSON object"}
    assert rows_of(decoded) == [each for each in range(100, 400) if each not in (223, 300, 301)]
    assert decoded.skipped is not None
    assert decoded.skipped["offset"].to_pylist() == [301]
    assert [(set(names), seen.records, seen.first) for names, seen in decoded.undeclared] == [
        ({"more"}, 1, ("orders", 3, 302))
    ]


@settings(max_examples=15, deadline=None)
@given(st.lists(st.booleans(), min_size=1, max_size=40))
def test_every_record_becomes_a_row_or_is_set_aside_however_many_are_deadly(are_deadly: list[bool]) -> None:
    values = [b'{"name":"%s"}' % (RAISE if is_deadly else b"good") for is_deadly in are_deadly]
    decoded = SurvivingDecoder(DEADLY).decode(records_of(*values))
    assert rows_of(decoded) == [100 + place for place, is_deadly in enumerate(are_deadly) if not is_deadly]
    assert list(aside(decoded)) == [100 + place for place, is_deadly in enumerate(are_deadly) if is_deadly]


def test_record_that_only_waits_is_set_aside_as_well() -> None:
    decoded = SurvivingDecoder(DEADLY, replace(BOUNDS, wall_seconds=0.5)).decode(
        records_of(b"{}", b'{"name":"%s"}' % WAIT)
    )
    assert (rows_of(decoded), aside(decoded)) == ([100], {101: "decoding it makes no progress for 0.5 s"})


def test_decoder_that_survives_gives_what_the_usual_one_gives_of_harmless_records() -> None:
    values = [b'{"id":1}', b"{", None, b'{"id":2,"more":1}', b'{"id":"x"}']
    usual, surviving = (each(DEADLY).decode(records_of(*values)) for each in (BoundedDecoder, SurvivingDecoder))
    assert usual == surviving


@pytest.mark.parametrize(
    "bounds", [DecodingBounds(most_deaths=20), DecodingBounds(all_seconds=0)], ids=["deaths", "seconds"]
)
def test_search_is_bounded_and_names_the_offsets_that_are_left(bounds: DecodingBounds) -> None:
    records = records_of(*[b'{"name":"%s"}' % RAISE] * 50)
    with pytest.raises(RowsRefusedError, match=r"orders\[3\] offset 1\d\d to orders\[3\] offset 1\d\d") as caught:
        SurvivingDecoder(DEADLY, bounds).decode(records)
    assert "A process has died" in caught.value.why


def test_error_that_may_pass_is_raised_and_no_record_is_blamed() -> None:
    class Offline(RecordDecoder):
        def decode(self, records: pa.RecordBatch) -> Decoded:
            raise ServiceUnavailableError("The registry does not answer.")

    decoder = Offline(parse_columns("id bigint"))
    for each in (SurvivingDecoder(decoder), BoundedDecoder(decoder)):
        with pytest.raises(ServiceUnavailableError):
            each.decode(records_of(b"{}"))


def test_usual_decoder_tells_that_its_library_has_failed() -> None:
    for marker in (RAISE, GREED):
        with pytest.raises(DecoderFailedError):
            BoundedDecoder(DEADLY).decode(records_of(b'{"name":"%s"}' % marker))


@pytest.mark.parametrize(("marker", "exit_code"), [(STALL, -14), (SEGFAULT, -11)])
def test_negative_control_the_usual_decoder_ends_with_its_process(marker: bytes, exit_code: int) -> None:
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        faulthandler.disable()
        BoundedDecoder(DEADLY, replace(BOUNDS, wall_seconds=0.2)).decode(records_of(b'{"name":"%s"}' % marker))
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == exit_code
