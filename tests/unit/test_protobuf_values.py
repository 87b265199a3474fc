"""What a Protobuf value means is what ``docs/reference/protobuf.md`` says: each row, alone and among other records."""

import ast
import pickle
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from typing_extensions import override

from batchledger.formats.decoding.protobuf.checking import MessageChecker
from batchledger.formats.decoding.protobuf.compiling import ProtobufSchemaError, compile_files
from batchledger.formats.decoding.protobuf.decoder import MALFORMED, NO_MESSAGE, ProtobufDecoder
from batchledger.formats.decoding.protobuf.schema import load_message, make_class
from batchledger.model.records.columns import Column, parse_columns
from tests.meaning import at_each_row

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "protobuf.md"
TEXT = PAGE.read_text(encoding="utf-8")
DEFINITIONS = {match[1]: match[0] for match in re.finditer(r'syntax = "(proto\d)";.*?(?=```)', TEXT, re.DOTALL)}
NEIGHBOURS = 200


def find_unknown(decoder: ProtobufDecoder, value: bytes) -> frozenset[str]:
    """The fields of a value that the schema does not know."""
    return decoder.decode_noticing(pa.array([value], pa.binary()))[3].get(0, frozenset())


@dataclass(frozen=True)
class ProtobufMeaning:
    """One row: the field's type, the column's type, the message if there is one, and what becomes of it."""

    field: str
    column: str
    value: bytes | None
    becomes: str

    @override
    def __str__(self) -> str:
        return f"{self.column}: {self.field[:40]} {self.value!r:.60}"

    @property
    def schema(self) -> str:
        """The file with the one field, also within another message."""
        syntax, type_ = ("proto2", self.field[7:]) if self.field.startswith("proto2 ") else ("proto3", self.field)
        label = "optional " if syntax == "proto2" else ""
        return (
            f"{DEFINITIONS[syntax]}\nmessage Top {{ {type_} field = 1; }}\n"
            f"message Outer {{ {label}int64 id = 1; {label}Top body = 2; }}"
        )

    @property
    def columns(self) -> tuple[Column, ...]:
        """The one declared column."""
        return parse_columns(f"field {self.column}")

    @property
    def errors(self) -> set[str]:
        """The ways to say the error: of the whole record, or of the column."""
        why = self.becomes.removeprefix("quarantined: ")
        return set() if why == self.becomes else {why, f"field ({self.column}) cannot hold {why}"}


def read_page() -> Iterator[ProtobufMeaning]:
    for line in TEXT.splitlines():
        row = re.fullmatch(r"\| `(.+?)` \| `(.+?)` \| (?:`(b['\"].*?['\"])` \| )?(.*) \|", line)
        if row is not None:
            yield ProtobufMeaning(row[1], row[2], None if row[3] is None else ast.literal_eval(row[3]), row[4])


ROWS = list(read_page())
VALUES = [each for each in ROWS if each.value is not None]
NEVER = [each for each in ROWS if each.value is None]
ORDER = """
syntax = "proto3";
message Order {
  int64 id = 1;
  oneof contact { string mail = 2; int64 phone = 3; }
  repeated Line lines = 4;
  message Line { int32 count = 1; map<string, Part> parts = 2; }
  message Part { int32 size = 1; }
}
"""


def show(value: Any) -> str:
    """A value of a column as the page writes it."""
    match value:
        case None:
            return "*null*"
        case "" | b"":
            return "``"
        case bytes():
            return f"`{value.hex()}`"
        case datetime():
            return f"`{value.replace(tzinfo=None)}`"
        case _:
            return f"`{value}`"


def within(value: bytes, number: int) -> bytes:
    """A message as the field of another one."""
    length, written = len(value), b""
    while length > 127:
        written, length = written + bytes([length & 127 | 128]), length >> 7
    return bytes([number << 3 | 2]) + written + bytes([length]) + value


def decode(decoder: ProtobufDecoder, *values: bytes | None) -> tuple[list[dict[str, Any]], dict[int, str]]:
    rows, is_decoded, errors = decoder.decode(pa.array(values, pa.binary()))
    rows.validate(full=True)
    assert is_decoded.tolist() == [place not in errors for place in range(len(values))]
    return rows.to_pylist(), dict(errors)


def test_page_has_rows() -> None:
    assert len(VALUES) > 150
    assert len(NEVER) > 20
    assert set(DEFINITIONS) == {"proto2", "proto3"}


@at_each_row(VALUES)
def test_value_becomes_what_the_page_says(meaning: ProtobufMeaning) -> None:
    found, errors = decode(ProtobufDecoder(meaning.schema, (), "Top", meaning.columns), meaning.value)
    if meaning.errors:
        assert errors[0] in meaning.errors
    else:
        assert errors == {}
        assert show(found[0]["field"]) == meaning.becomes


@at_each_row(VALUES)
def test_value_becomes_the_same_among_others(meaning: ProtobufMeaning) -> None:
    """Within another message, and beside many in which that message is absent."""
    columns = (*parse_columns("id bigint"), Column("field", meaning.columns[0].type, ("body", "field")))
    decoder = ProtobufDecoder(meaning.schema, (), "Outer", columns)
    assert meaning.value is not None
    other = [b"\x08\x01"] * NEIGHBOURS
    found, errors = decode(decoder, *other, b"\x08\x02" + within(meaning.value, 2), *other)
    assert [each["id"] for each in found].count(1) == 2 * NEIGHBOURS
    if meaning.errors:
        assert list(errors) == [NEIGHBOURS]
    else:
        assert errors == {}
        assert show(found[NEIGHBOURS]["field"]) == meaning.becomes


@at_each_row(NEVER)
def test_type_that_never_fits_is_refused_when_the_decoder_is_made(meaning: ProtobufMeaning) -> None:
    with pytest.raises(ProtobufSchemaError) as refused:
        ProtobufDecoder(meaning.schema, (), "Top", meaning.columns)
    assert str(refused.value) == meaning.becomes


def test_null_is_no_message_and_an_empty_value_is_one_with_defaults() -> None:
    decoder = ProtobufDecoder(ORDER, (), (0,), parse_columns("id bigint, mail string, phone bigint, absent date"))
    found, errors = decode(decoder, None, b"", b"\x08")
    assert found == [{"id": 0, "mail": None, "phone": None, "absent": None}]
    assert errors == {0: NO_MESSAGE, 2: MALFORMED}


def test_fields_of_a_oneof_are_null_unless_they_are_the_one() -> None:
    decoder = ProtobufDecoder(ORDER, (), (0,), parse_columns("mail string, phone bigint"))
    found, _ = decode(decoder, b"\x12\x00", b"\x18\x00", b"\x12\x01a\x18\x05")
    assert found == [{"mail": "", "phone": None}, {"mail": None, "phone": 0}, {"mail": None, "phone": 5}]


def test_records_that_do_not_fit_leave_the_rows_of_others_alone() -> None:
    decoder = ProtobufDecoder(ORDER, (), (0,), parse_columns("id tinyint, lines array<struct<count tinyint>>"))
    found, errors = decode(decoder, b"\x08\x01", b"\x08\xc8\x01", b"\x22\x03\x08\xc8\x01", b"\x08\x02")
    assert [each["id"] for each in found] == [1, 2]
    assert errors == {
        1: "id (tinyint) cannot hold a number beyond its range",
        2: "lines[].count (tinyint) cannot hold a number beyond its range",
    }


def test_unknown_fields_are_named_with_the_way_to_them() -> None:
    decoder = ProtobufDecoder(ORDER, (), (0,), parse_columns("id bigint"))
    part = within(b"\x08\x01\x30\x01", 2)
    line = within(b"\x38\x01" + within(b"\x0a\x01k" + part, 2), 4)
    assert find_unknown(decoder, b"\x08\x01" + line + b"\x48\x01\x48\x02") == {
        "field number 9",
        "lines[].field number 7",
        "lines[].parts[].field number 6",
    }
    assert find_unknown(decoder, b"\x08\x01") == frozenset()
    assert find_unknown(decoder, b"\x08") == frozenset()
    assert decode(decoder, b"\x08\x01" + line)[1] == {}


def test_known_number_of_another_wire_type_is_refused_also_in_a_field_without_a_column() -> None:
    decoder = ProtobufDecoder(ORDER, (), (0,), parse_columns("id bigint"))
    _, errors = decode(decoder, within(within(b"\x0a\x01k" + within(b"\x0a\x00", 2), 2), 4))
    assert errors == {0: "field lines[].parts[].size has bytes that its type does not have"}


def test_without_the_check_such_bytes_would_become_a_default(monkeypatch: pytest.MonkeyPatch) -> None:
    """Negative control: the runtime passes over them in silence."""
    decoder = ProtobufDecoder(ORDER, (), (0,), parse_columns("id bigint"))
    assert decode(decoder, b"\x0a\x01a") == ([], {0: "field id has bytes that its type does not have"})
    monkeypatch.setattr(MessageChecker, "look", lambda self, message: frozenset())
    assert decode(decoder, b"\x0a\x01a") == ([{"id": 0}], {})


def test_group_and_extension_of_proto2() -> None:
    text = """
        syntax = "proto2";
        package shop;
        message Cart { repeated group Item = 1 { optional int32 count = 2; } extensions 100 to 110; }
        message Note { optional string text = 1; }
        extend Cart { optional Note note = 100; }
        message Top { optional Cart cart = 1; map<string, string> names = 2; }
    """
    columns = parse_columns("cart string, cart.item as item array<struct<count int>>")
    decoder = ProtobufDecoder(text, (), "shop.Top", parse_columns("cart string"))
    value = within(b"\x0b\x10\x05\x0c\xa2\x06\x03\x0a\x01x", 1)
    assert decode(decoder, value) == ([{"cart": '{"[shop.note]":{"text":"x"},"item":[{"count":5}]}'}], {})
    assert decode(ProtobufDecoder(text, (), (2,), columns[1:]), value)[0] == [{"item": [{"count": 5}]}]
    assert find_unknown(decoder, within(b"\xa2\x06\x02\x10\x01", 1)) == {"cart.[shop.note].field number 2"}
    _, errors = decode(decoder, b"\x12\x06\x0a\x01\xff\x12\x01a", b"\x12\x06\x0a\x01a\x12\x01\xff")
    assert set(errors.values()) == {"field names has a text that is not valid UTF-8"}


@pytest.mark.parametrize("edition", ["2023", "2024"])
def test_editions(edition: str) -> None:
    text = f"""
        edition = "{edition}";
        message Top {{
          int32 a = 1;
          int32 b = 2 [features.field_presence = IMPLICIT];
          Top inner = 3 [features.message_encoding = DELIMITED];
          int32 c = 4 [features.field_presence = LEGACY_REQUIRED];
        }}
    """
    decoder = ProtobufDecoder(text, (), (0,), parse_columns("a int, b int, inner.a as c int"))
    assert decode(decoder, b"\x1b\x08\x05\x20\x01\x1c\x20\x01", b"") == (
        [{"a": None, "b": 0, "c": 5}],
        {1: "the value lacks the required field c"},
    )


def test_imports_come_from_references_and_from_the_files_that_are_known() -> None:
    references = (
        ("shop/unit.proto", 'syntax = "proto3"; package shop; enum Unit { KG = 0; M = 1; }'),
        (
            "shop/size.proto",
            'syntax = "proto3"; package shop; import "shop/unit.proto"; message Size { Unit unit = 1; }',
        ),
    )
    text = """
        syntax = "proto3"; package shop; import "shop/size.proto"; import "google/type/date.proto";
        import "google/protobuf/descriptor.proto";
        extend google.protobuf.FieldOptions { string doc = 50001; }
        message Top { Size size = 1 [(doc) = "how large"]; int32 other = 2; google.type.Date day = 3; }
    """
    decoder = ProtobufDecoder(text, references, (0,), parse_columns("size.unit as unit string, absent date, day date"))
    decoder = pickle.loads(pickle.dumps(decoder))  # noqa: S301 -- our own bytes
    day = within(b"\x08\xea\x0f\x10\x0b\x18\x16", 3)
    assert decode(decoder, b"\x0a\x02\x08\x01" + day)[0] == [{"unit": "M", "absent": None, "day": date(2026, 11, 22)}]


@pytest.mark.parametrize(
    ("text", "references", "message", "why"),
    [
        (
            "message {",
            (),
            (0,),
            "the writer's schema is not one of Protobuf: line 1, column 27: Expected message name.",
        ),
        ('{"type": "record"}', (), (0,), "the writer's schema is not one of Protobuf: line 1, column 1: "),
        (
            'import "no/such.proto";',
            (),
            (0,),
            "the writer's schema imports 'no/such.proto', which is not among its references",
        ),
        ('import "a.proto";', (("a.proto", "enum"),), (0,), "the import 'a.proto' is not one of Protobuf: line 1, "),
        ('import "a.proto";', (("../a.proto", ""),), (0,), "refers to '../a.proto', which is no path of an import"),
        ('import "a.proto";', (("/a.proto", ""),), (0,), "refers to '/a.proto', which is no path of an import"),
        ("message A { Missing a = 1; }", (), (0,), '"Missing" is not defined.'),
        ("message A { message B { int32 HasField = 1; } }", (), (0,), "field HasField of message B has a name that"),
        ("message A {}", (), (1,), "the writer's schema has no message with its indexes"),
        ("message A {}", (), (0, 0), "the writer's schema has no message with its indexes"),
        ("message A {}", (), (), "the writer's schema has no message with its indexes"),
        ("message A {}", (), "a.A", "the writer's schema has no message 'a.A'"),
    ],
)
def test_schema_that_is_none_is_refused(text: str, references: Any, message: Any, why: str) -> None:
    with pytest.raises(ProtobufSchemaError, match=why):
        ProtobufDecoder(f'syntax = "proto3";{text}' if text[0] != "{" else text, references, message, ())


@pytest.mark.parametrize(
    ("message", "name"),
    [((0,), "p.A"), ((1,), "p.B"), ((1, 0), "p.B.C"), ((1, 1), "p.B.E"), ((1, 0, 0), "p.B.C.D"), ("p.B.C", "p.B.C")],
)
def test_message_is_found_by_its_indexes_or_its_name(message: Any, name: str) -> None:
    text = """
        syntax = "proto3"; package p;
        message A { map<string, int32> m = 1; message X {} }
        enum Between { ZERO = 0; }
        message B { enum Kind { NONE = 0; } message C { message D {} } message E {} }
    """
    assert load_message(compile_files(text, ()), message).full_name == name


def test_message_behind_a_map_is_found_as_either_client_counts_unless_they_mean_different_ones() -> None:
    files = compile_files('syntax = "proto3"; message A { map<string, int32> m = 1; message X {} message Y {} }', ())
    assert load_message(files, (0, 0)).full_name == "A.X"
    assert load_message(files, (0, 2)).full_name == "A.Y"
    with pytest.raises(ProtobufSchemaError, match=r"A\.X or A\.Y: clients count differently"):
        load_message(files, (0, 1))


def test_first_name_of_a_number_counts_and_names_of_python_are_names_like_others() -> None:
    text = """
        syntax = "proto3";
        enum E { option allow_alias = true; ZERO = 0; A = 1; B = 1; }
        message M { E class = 1; int32 None = 2; int32 items = 3; int32 value = 4; }
    """
    decoder = ProtobufDecoder(text, (), (0,), parse_columns("class string, None int, items int, value int"))
    found, _ = decode(decoder, b"\x08\x01\x10\x02\x18\x03\x20\x04")
    assert found == [{"class": "A", "None": 2, "items": 3, "value": 4}]


def test_two_versions_of_one_file_live_side_by_side() -> None:
    first = ProtobufDecoder('syntax = "proto3"; message A { int64 x = 1; }', (), "A", parse_columns("x string"))
    second = ProtobufDecoder('syntax = "proto3"; message A { string x = 1; }', (), "A", parse_columns("x string"))
    for _ in range(2):
        assert decode(first, b"\x08\x05")[0] == [{"x": "5"}]
        assert decode(second, b"\x0a\x01a")[0] == [{"x": "a"}]


def test_schemas_are_read_by_several_threads_at_once() -> None:
    texts = [f'syntax = "proto3"; message A {{ int64 f{number} = 1; }}' for number in range(8)]
    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(lambda text: make_class(load_message(compile_files(text, ()), "A")), texts))
    assert [each.DESCRIPTOR.fields[0].name for each in found] == [f"f{number}" for number in range(8)]


def test_batch_of_decimals_is_read_the_same_with_a_text_that_arrow_reads_otherwise() -> None:
    decoder = ProtobufDecoder(
        'syntax = "proto3"; message A { string x = 1; }', (), "A", parse_columns("x decimal(38,18)")
    )
    texts = ["0.000000000000000001", "-99999999999999999999.999999999999999999", "-0", "12.50"]
    values = [within(each.encode(), 1) for each in texts]
    expected = [{"x": Decimal(each)} for each in texts]
    assert decode(decoder, *values)[0] == expected
    found, errors = decode(decoder, *values, within(b"1e1", 1), within(b"01", 1))
    assert found == [*expected, {"x": Decimal(10)}]
    assert errors == {5: "x (decimal(38,18)) cannot hold a text that is not a number"}
