"""The formats that the bench compares hold the same fields, in the frames that a registry's clients write."""

import gc
import os
from multiprocessing.connection import Connection
from typing import Any

import pytest

from bench.formats import AVRO, FLAT_JSON, FORMATS, NESTED_JSON, PROTOBUF, Format
from bench.orders import ORDER_VARIABLE, Order
from bench.programs.decode_blocks import BLOCK_RECORDS, CPU_SECONDS, main, make_blocks, work
from bench.records import make_fields
from tests.forked import fork_server


def lay_flat(row: dict[str, Any]) -> dict[str, Any]:
    """The fields of a nested record as a flat one has them."""
    if "device" not in row:
        return row
    device = row["device"]
    return {
        "message_id": row["message_id"],
        "device_id": device["id"],
        "seq": device["seq"],
        "amount": row["amount"],
        "note": " ".join(row["note"]),
    }


@pytest.mark.parametrize("format_", FORMATS, ids=lambda each: each.name)
def test_each_format_is_decoded_into_the_fields_that_were_written(format_: Format) -> None:
    (block,) = make_blocks(format_, 1)
    rows = format_.open_decoder()(block)[0]
    assert [lay_flat(row) for row in rows.to_pylist()] == [make_fields(number) for number in range(BLOCK_RECORDS)]


def test_frame_holds_the_id_of_the_schema_and_the_place_of_the_message() -> None:
    assert AVRO.write_framed(258, 7) == b"\0\0\0\1\2" + AVRO.write(7)
    assert PROTOBUF.write_framed(258, 7) == b"\0\0\0\1\2\0" + PROTOBUF.write(7)


def test_json_is_in_no_frame_and_needs_no_registry() -> None:
    for format_ in (FLAT_JSON, NESTED_JSON):
        assert format_.register("http://nowhere.invalid")(7) == format_.write(7)


def test_pipeline_names_format_and_registry_if_records_have_a_schema_of_their_writer() -> None:
    assert FLAT_JSON.source == {}
    assert NESTED_JSON.source == {"schema": NESTED_JSON.columns}
    assert AVRO.source == {"format": "avro", "registry": "registry_default"}
    assert PROTOBUF.source == {"format": "protobuf", "registry": "registry_default"}


def test_decoding_alone_gives_the_cpu_of_all_blocks() -> None:
    assert work(Order("", "", "", {}, {"format": "Avro", "blocks": "2"}))[CPU_SECONDS] > 0


def test_decoding_alone_refuses_records_that_do_not_decode(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = Format("broken", lambda number: b"{" if number % 2 else b"{}", FLAT_JSON.open_decoder)
    monkeypatch.setattr("bench.programs.decode_blocks.FORMATS", (broken,))
    with pytest.raises(RuntimeError, match="5,000 records in broken were decoded, of 10,000"):
        work(Order("", "", "", {}, {"format": "broken", "blocks": "1"}))


def _decode_and_count(outcome: Connection) -> None:
    """Send how often the youngest objects were visited while blocks of Protobuf were decoded."""
    os.environ[ORDER_VARIABLE] = Order("", "", "", {}, {"format": "Protobuf", "blocks": "2"}).to_json()
    before = gc.get_stats()[0]["collections"]
    main()
    outcome.send(gc.get_stats()[0]["collections"] - before)


@pytest.mark.proof
def test_decoding_alone_collects_garbage_as_rarely_as_a_worker_of_spark() -> None:
    """With the thresholds of Python each block is visited some ten times."""
    ours, theirs = fork_server().Pipe(duplex=False)
    process = fork_server().Process(target=_decode_and_count, args=(theirs,), daemon=True)
    process.start()
    assert ours.poll(120)
    assert ours.recv() < 5
    process.join()
