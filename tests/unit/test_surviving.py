"""A record that ends the process of its decoder is set aside with its coordinates; its neighbours become rows."""

import errno
import faulthandler
import json
import os
import signal
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from threading import Event
from types import SimpleNamespace

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typing_extensions import override

from batchledger.formats.decoding import surviving
from batchledger.formats.decoding.decoder import Decoded, RecordDecoder
from batchledger.formats.decoding.registered import KEY_HEADER, FindSchema, RegisteredDecoder
from batchledger.formats.decoding.surviving import BoundedDecoder, DecodingBounds, SurvivingDecoder
from batchledger.formats.records import RECORD_SCHEMA
from batchledger.model.errors import DecoderFailedError, RowsRefusedError, ServiceUnavailableError, StagingError
from batchledger.model.records.columns import parse_columns
from batchledger.model.records.outer import KeyFormat, OuterColumns, RecordKey
from batchledger.model.records.rules import TombstonePolicy, UnknownFieldPolicy
from batchledger.model.records.writer_schemas import Framing, SchemaType, WriterSchema
from tests.avro import encode, frame, record_schema
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
    values: list[bytes | None] = [b'{"id":1}'] * 30
    values[12] = b'{"name":"%s"}' % marker
    values[20] = b"{"
    values[21] = None
    values[22] = b'{"id":2,"more":1}'
    records = records_of(*values)
    decoded = SurvivingDecoder(DEADLY, BOUNDS).decode(records)
    assert aside(decoded) == {112: told, 120: "the value is not exactly one JSON object"}
    assert rows_of(decoded) == [each for each in range(100, 130) if each not in (112, 120, 121)]
    assert decoded.skipped is not None
    assert decoded.skipped["offset"].to_pylist() == [121]
    assert [(set(names), seen.records, seen.first) for names, seen in decoded.undeclared] == [
        ({"more"}, 1, ("orders", 3, 122))
    ]


# A death costs a process for each level of the search: two levels, and more deaths than parts.
@settings(max_examples=10, deadline=None)
@given(st.lists(st.booleans(), min_size=1, max_size=15))
def test_every_record_becomes_a_row_or_is_set_aside_however_many_are_deadly(are_deadly: list[bool]) -> None:
    values = [b'{"name":"%s"}' % (RAISE if is_deadly else b"good") for is_deadly in are_deadly]
    decoded = SurvivingDecoder(DEADLY).decode(records_of(*values))
    assert rows_of(decoded) == [100 + place for place, is_deadly in enumerate(are_deadly) if not is_deadly]
    assert list(aside(decoded)) == [100 + place for place, is_deadly in enumerate(are_deadly) if is_deadly]


def test_record_that_only_waits_is_set_aside_as_well() -> None:
    decoded = SurvivingDecoder(DEADLY, replace(BOUNDS, wall_seconds=3)).decode(
        records_of(b"{}", b'{"name":"%s"}' % WAIT)
    )
    assert (rows_of(decoded), aside(decoded)) == ([100], {101: "decoding it makes no progress for 3 s"})


def test_decoder_that_survives_gives_what_the_usual_one_gives_of_harmless_records() -> None:
    values = [b'{"id":1}', b"{", None, b'{"id":2,"more":1}', b'{"id":"x"}']
    usual, surviving = (each(DEADLY).decode(records_of(*values)) for each in (BoundedDecoder, SurvivingDecoder))
    assert usual == surviving


@pytest.mark.parametrize(
    "bounds", [DecodingBounds(most_deaths=5), DecodingBounds(all_seconds=0)], ids=["deaths", "seconds"]
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
        # A busy machine may take longer than that for a segmentation fault.
        bounds = replace(BOUNDS, wall_seconds=0.2) if marker == STALL else BOUNDS
        BoundedDecoder(DEADLY, bounds).decode(records_of(b'{"name":"%s"}' % marker))
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == exit_code


SCHEMA = record_schema(id="long")
DECODED_WITHIN_SECONDS = 1.0


@dataclass(frozen=True)
class Watched(RecordDecoder):
    """Notes that the alarm is set again behind the look-ups."""

    @override
    def decode(self, records: pa.RecordBatch) -> Decoded:
        decoded = super().decode(records)
        assert 0 < signal.getitimer(signal.ITIMER_REAL)[0] <= DECODED_WITHIN_SECONDS
        return decoded


def registered(find: FindSchema) -> RecordDecoder:
    """A decoder of framed keys and values in Avro."""
    columns, keys = parse_columns("id bigint"), parse_columns("number bigint")
    return Watched(
        columns,
        outer=OuterColumns(RecordKey(KeyFormat.AVRO, keys)),
        registered=RegisteredDecoder(SchemaType.AVRO, Framing.CONFLUENT, columns, find),
        registered_keys=RegisteredDecoder(SchemaType.AVRO, Framing.CONFLUENT, keys, find, header=KEY_HEADER),
    )


def framed(size: int) -> pa.RecordBatch:
    """Records whose keys name schema 8, and whose values name schema 7."""
    key = frame(8, encode(record_schema(number="long"), {"number": 1}))
    rows = records_of(*(frame(7, encode(SCHEMA, {"id": each})) for each in range(size)))
    return rows.set_column(rows.schema.get_field_index("key"), "key", pa.array([key] * size, pa.binary()))


def ends_well(act: Callable[[], object]) -> bool:
    """Whether a process of its own survives it."""
    child = os.fork()
    if child == 0:
        try:
            act()
            os._exit(0)
        finally:
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_wait_for_a_schema_is_no_decoding_and_each_schema_is_looked_up_once(tmp_path: Path) -> None:
    looked_up = tmp_path / "looked up"

    def find(schema_id: object) -> WriterSchema:
        with looked_up.open("a") as file:
            file.write(f"{schema_id} ")
        if schema_id == 7:
            # Longer than decoding may take.
            Event().wait(1.2 * DECODED_WITHIN_SECONDS)
        schema = SCHEMA if schema_id == 7 else record_schema(number="long")
        return WriterSchema(int(str(schema_id)), SchemaType.AVRO, json.dumps(schema))

    bounds, records = replace(BOUNDS, wall_seconds=DECODED_WITHIN_SECONDS), framed(20)
    assert ends_well(lambda: BoundedDecoder(registered(find), bounds).decode(records))
    looked_up.unlink()
    decoder = SurvivingDecoder(registered(find), bounds)
    for _ in range(3):
        decoded = decoder.decode(records)
        assert (rows_of(decoded), aside(decoded), decoder.deaths) == (list(range(100, 120)), {}, 0)
    assert sorted(looked_up.read_text().split()) == ["7", "8"]


def test_registry_that_does_not_answer_is_an_error_of_its_own_in_both_readings() -> None:
    def find(_: object) -> WriterSchema:
        raise ServiceUnavailableError("The registry does not answer.")

    for each in (SurvivingDecoder, BoundedDecoder):
        with pytest.raises(ServiceUnavailableError):
            each(registered(find)).decode(framed(1))


@dataclass(frozen=True)
class Killed(RecordDecoder):
    """Its process is killed from outside, by SIGKILL or with an exit code, as often as there are files."""

    folder: Path = Path()
    ending: Callable[[], object] = lambda: os.kill(os.getpid(), signal.SIGKILL)

    @override
    def decode(self, records: pa.RecordBatch) -> Decoded:
        for file in self.folder.iterdir():
            file.unlink()
            self.ending()
        return super().decode(records)


@pytest.mark.parametrize(
    "ending",
    [
        lambda: os.kill(os.getpid(), signal.SIGKILL),
        lambda: os.kill(os.getpid(), signal.SIGTERM),
        lambda: os._exit(1),
    ],
    ids=["SIGKILL", "SIGTERM", "exit code"],
)
def test_record_whose_process_the_machine_ends_once_becomes_a_row(tmp_path: Path, ending: Callable[[], object]) -> None:
    (tmp_path / "once").touch()
    decoded = SurvivingDecoder(Killed(DEADLY.columns, folder=tmp_path, ending=ending)).decode(records_of(b"{}"))
    assert (rows_of(decoded), aside(decoded)) == ([100], {})
    assert not list(tmp_path.iterdir())


def test_no_record_is_blamed_if_processes_end_without_a_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(9):
        (tmp_path / str(number)).touch()
    with pytest.raises(StagingError, match="Decoding nothing ends the process by SIGKILL") as caught:
        SurvivingDecoder(Killed(DEADLY.columns, folder=tmp_path)).decode(records_of(b"{}"))
    assert caught.value.retryable

    def refuse(_: int) -> None:
        raise OSError(errno.EMFILE, "")

    monkeypatch.setattr(surviving, "_limit_memory", refuse)
    with pytest.raises(StagingError, match="Decoding nothing ends the process with exit code 1"):
        SurvivingDecoder(DEADLY).decode(records_of(b"{}"))


def test_no_record_is_blamed_for_what_the_system_refuses() -> None:
    class Refused(RecordDecoder):
        @override
        def decode(self, records: pa.RecordBatch) -> Decoded:
            raise OSError(errno.EMFILE, "a value")

    with pytest.raises(StagingError, match="Too many open files") as caught:
        SurvivingDecoder(Refused(DEADLY.columns)).decode(records_of(b"{}"))
    assert "a value" not in str(caught.value)


def test_only_the_seconds_of_searches_count_and_those_of_all_searches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each look at the clock takes ten seconds, and an hour passes between two blocks."""
    seconds = count(step=10)
    monkeypatch.setattr(surviving, "time", SimpleNamespace(monotonic=lambda: next(seconds)))
    decoder = SurvivingDecoder(DEADLY, DecodingBounds(all_seconds=50))
    deadly = records_of(b'{"name":"%s"}' % RAISE)
    for _ in range(3):
        assert list(aside(decoder.decode(deadly))) == [100]
        for _ in range(360):
            next(seconds)
    with pytest.raises(RowsRefusedError):
        decoder.decode(deadly)
