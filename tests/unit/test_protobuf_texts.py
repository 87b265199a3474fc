"""Random messages that Protobuf's runtime writes: what is decoded is what was written, whatever lies beside it."""

import json
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import cache
from typing import Any

import pyarrow as pa
from google.protobuf.json_format import MessageToDict, MessageToJson
from hypothesis import given, settings
from hypothesis import strategies as st

from batchledger.formats.decoding.protobuf.compiling import compile_files
from batchledger.formats.decoding.protobuf.decoder import ProtobufDecoder
from batchledger.formats.decoding.protobuf.schema import load_message, make_class
from batchledger.model.records.columns import REST, parse_columns
from tests.unit.test_protobuf_values import find_unknown

SCALARS = """
syntax = "proto3";
message Top {
  int32 a = 1; sint64 b = 2; uint64 c = 3; fixed32 d = 4; bool e = 5; double f = 6; float g = 7; string h = 8;
  bytes i = 9; optional int64 j = 10; optional string k = 11; oneof either { int32 l = 12; string m = 13; }
  string n = 14; int64 o = 15;
}
"""
SCALAR_COLUMNS = (
    "a int, b bigint, c decimal(20,0), d bigint, e boolean, f double, g float, h string, i binary, j bigint, k string, "
    "l int, m string, n decimal(38,9), o timestamp_us"
)
NESTED = """
syntax = "{syntax}";
import "google/protobuf/timestamp.proto";
message Top {{
  repeated int64 numbers = 1; map<int32, string> names = 2; {optional} Inner inner = 3; repeated Inner inners = 4;
  map<string, Inner> by_name = 5; {optional} google.protobuf.Timestamp at = 6;
}}
message Inner {{ {optional} int32 count = 1; {optional} string text = 2; repeated Inner inners = 3; }}
"""
INNER = "struct<count int, text string>"
NESTED_COLUMNS = (
    f"numbers array<bigint>, names map<string, string>, inner {INNER}, inners array<{INNER}>, "
    f"by_name map<string, {INNER}>, at timestamp, inner.text as inner_text string"
)

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=20)
INT32, INT64 = st.integers(-(2**31), 2**31 - 1), st.integers(-(2**63), 2**63 - 1)
MOMENT = st.datetimes(timezones=st.just(UTC))
DECIMAL = st.decimals(-(10**20), 10**20, places=9, allow_nan=False)
SCALAR_VALUES = st.fixed_dictionaries(
    {
        "a": INT32,
        "b": INT64,
        "c": st.integers(0, 2**64 - 1),
        "d": st.integers(0, 2**32 - 1),
        "e": st.booleans(),
        "f": st.floats(allow_nan=False),
        "g": st.floats(allow_nan=False, width=32),
        "h": TEXT,
        "i": st.binary(max_size=20),
        "n": DECIMAL,
        "o": MOMENT,
    },
    optional={"j": INT64, "k": TEXT, "l": INT32},
)
INNERS = st.fixed_dictionaries({}, optional={"count": INT32, "text": TEXT})
NESTED_VALUES = st.fixed_dictionaries(
    {},
    optional={
        "numbers": st.lists(INT64, max_size=3),
        "names": st.dictionaries(INT32, TEXT, max_size=3),
        "inner": INNERS,
        "inners": st.lists(INNERS, max_size=3),
        "by_name": st.dictionaries(TEXT, INNERS, max_size=3),
        "at": MOMENT,
    },
)


def microseconds(moment: datetime) -> int:
    return (moment - EPOCH) // timedelta(microseconds=1)


# Each run draws other messages: what these do not meet, the next run may meet.
FEW = settings(max_examples=60, deadline=None)
# A schema is compiled once, and read by one decoder.
open_decoder = cache(ProtobufDecoder)


@cache
def open_class(text: str, name: str = "Top") -> Any:
    return make_class(load_message(compile_files(text, ()), name))


def write_nested(class_: Any, record: dict[str, Any]) -> Any:
    fields = dict(record)
    if "at" in fields:
        seconds, rest = divmod(microseconds(fields["at"]), 1_000_000)
        fields["at"] = {"seconds": seconds, "nanos": rest * 1_000}
    return class_(**fields)


def decode(decoder: ProtobufDecoder, values: list[bytes]) -> list[dict[str, Any]]:
    rows, is_decoded, errors = decoder.decode(pa.array(values, pa.binary()))
    rows.validate(full=True)
    assert is_decoded.all()
    assert errors == {}
    return list(rows.to_pylist())


@FEW
@given(st.lists(SCALAR_VALUES, max_size=8))
def test_scalars_become_what_was_written(records: list[dict[str, Any]]) -> None:
    class_, decoder = open_class(SCALARS), open_decoder(SCALARS, (), (0,), parse_columns(SCALAR_COLUMNS))
    messages = [class_(**{**each, "n": f"{each['n']:f}", "o": microseconds(each["o"])}) for each in records]
    absent = {"j": None, "k": None, "l": None, "m": None}
    expected = [{**absent, **each, "c": Decimal(each["c"])} for each in records]
    assert decode(decoder, [each.SerializeToString() for each in messages]) == expected


@FEW
@given(st.lists(NESTED_VALUES, max_size=5), st.sampled_from(["proto2", "proto3"]))
def test_nested_values_become_what_was_written(records: list[dict[str, Any]], syntax: str) -> None:
    text = NESTED.format(syntax=syntax, optional="optional" if syntax == "proto2" else "")
    absent = {"count": None, "text": None} if syntax == "proto2" else {"count": 0, "text": ""}
    class_, decoder = open_class(text), open_decoder(text, (), (0,), parse_columns(NESTED_COLUMNS))
    expected = [
        {
            "numbers": each.get("numbers", []),
            "names": [(str(key), name) for key, name in sorted(each.get("names", {}).items())],
            "inner": {**absent, **each["inner"]} if "inner" in each else None,
            "inners": [{**absent, **inner} for inner in each.get("inners", [])],
            "by_name": [(key, {**absent, **inner}) for key, inner in sorted(each.get("by_name", {}).items())],
            "at": each.get("at"),
            "inner_text": {**absent, **each["inner"]}["text"] if "inner" in each else None,
        }
        for each in records
    ]
    assert decode(decoder, [write_nested(class_, each).SerializeToString() for each in records]) == expected


@FEW
@given(NESTED_VALUES)
def test_message_as_text_is_the_json_of_the_runtime(record: dict[str, Any]) -> None:
    text = NESTED.format(syntax="proto3", optional="") + "message Whole { Top top = 1; }"
    message = write_nested(open_class(text), record)
    decoder = open_decoder(text, (), "Whole", parse_columns("top jsonb"))
    value = open_class(text, "Whole")(top=message).SerializeToString()
    (row,) = decode(decoder, [value])
    expected = json.loads(MessageToJson(message, preserving_proto_field_name=True))
    assert json.loads(row["top"]) == expected
    assert row["top"] == json.dumps(expected, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


PARTLY_DECLARED = parse_columns(
    "numbers array<bigint>, inner struct<text string>, inners array<struct<count int>>, "
    "by_name map<string, struct<text string>>, at.seconds as at_seconds bigint"
)


def left_of(document: dict[str, Any]) -> dict[str, Any] | None:
    """The statement: what ``PARTLY_DECLARED`` does not hold of the JSON of a message with undeclared ``names``."""
    inners = [without(each, "count") for each in document.get("inners", [])]
    by_name = {key: without(each, "text") for key, each in document.get("by_name", {}).items()}
    found = {
        "names": document.get("names"),
        "inner": without(document.get("inner", {}), "text"),
        "inners": inners if any(inners) else None,
        "by_name": {key: each for key, each in by_name.items() if each} or None,
        "at": document.get("at"),
    }
    return {name: each for name, each in found.items() if each} or None


def without(document: dict[str, Any], declared: str) -> dict[str, Any] | None:
    return {name: each for name, each in document.items() if name != declared} or None


@FEW
@given(st.lists(NESTED_VALUES, max_size=5), st.sampled_from(["proto2", "proto3"]))
def test_what_no_column_declares_is_kept_at_its_place(records: list[dict[str, Any]], syntax: str) -> None:
    text = NESTED.format(syntax=syntax, optional="optional" if syntax == "proto2" else "")
    messages = [write_nested(open_class(text), each) for each in records]
    rows = decode(
        open_decoder(text, (), (0,), (*PARTLY_DECLARED, REST)), [each.SerializeToString() for each in messages]
    )
    for message, row in zip(messages, rows, strict=True):
        document = MessageToDict(message, preserving_proto_field_name=True)
        # A path leads into the moment, so the other half of it is left.
        document["at"] = {"nanos": message.at.nanos} if message.at.nanos else None
        assert (row["_rest"] and json.loads(row["_rest"])) == left_of(document)


@FEW
@given(NESTED_VALUES)
def test_all_of_a_message_is_kept_with_the_text_of_a_column_of_jsonb(record: dict[str, Any]) -> None:
    text = NESTED.format(syntax="proto3", optional="") + "message Whole { Top top = 1; }"
    message = write_nested(open_class(text), record)
    whole = open_class(text, "Whole")(top=message).SerializeToString()
    (column,) = decode(open_decoder(text, (), "Whole", parse_columns("top jsonb")), [whole])
    absent = (*parse_columns("absent date"), REST)
    (kept,) = decode(open_decoder(text, (), "Top", absent), [message.SerializeToString()])
    assert (kept["_rest"] or "{}") == column["top"]


def spoil(class_: Any, records: list[dict[str, Any]], data: st.DataObject) -> list[bytes]:
    """The messages of records, some of them cut off, lengthened or changed."""
    values = []
    for record in records:
        value = bytearray(write_nested(class_, record).SerializeToString())
        match data.draw(st.sampled_from(["none", "cut", "longer", "other"])):
            case "cut":
                value = value[: data.draw(st.integers(0, len(value)))]
            case "longer":
                value += data.draw(st.binary(max_size=5))
            case "other" if value:
                value[data.draw(st.integers(0, len(value) - 1))] = data.draw(st.integers(0, 255))
        values.append(bytes(value))
    return values


@FEW
@given(records=st.lists(NESTED_VALUES, min_size=1, max_size=5), data=st.data())
def test_what_is_cut_off_lengthened_or_changed_is_judged_the_same_alone(
    records: list[dict[str, Any]], data: st.DataObject
) -> None:
    """By a decoder of all fields, and by one of some beside what is kept."""
    text = NESTED.format(syntax="proto2", optional="optional")
    values = spoil(open_class(text), records, data)
    for columns in (parse_columns(NESTED_COLUMNS), (*PARTLY_DECLARED, REST)):
        decoder = open_decoder(text, (), (0,), columns)
        rows, is_decoded, errors = decoder.decode(pa.array(values, pa.binary()))
        rows.validate(full=True)
        found = iter(rows.to_pylist())
        for place, value in enumerate(values):
            alone, _, error = decoder.decode(pa.array([value], pa.binary()))
            assert dict(error) == ({0: errors[place]} if place in errors else {})
            assert alone.to_pylist() == ([next(found)] if is_decoded[place] else [])
            assert all("field number" in each for each in find_unknown(decoder, value))
