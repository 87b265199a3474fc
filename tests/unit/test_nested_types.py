"""Types with types within, and paths: how they are written, and what is refused."""

import pickle

import pytest

from batchledger.model.records.columns import parse_columns, write_columns
from batchledger.model.records.types import (
    NAMED_TYPES,
    ArrayOf,
    DecimalOf,
    Integer,
    MapOf,
    Scalar,
    StructField,
    StructOf,
    parse_type,
)


@pytest.mark.parametrize(
    ("written", "type_"),
    [
        ("ARRAY < Int >", "array<int>"),
        ("map<STRING,decimal( 10 , 2 )>", "map<string, decimal(10,2)>"),
        ("struct<Id: bigint,tags array<string>>", "struct<Id bigint, tags array<string>>"),
        ("struct<a struct<b map<string,array<date>>>>", "struct<a struct<b map<string, array<date>>>>"),
        ("array<timestamp_ms>", "array<timestamp_ms>"),
        ("JSONB", "jsonb"),
    ],
)
def test_type_has_one_form(written: str, type_: str) -> None:
    (column,) = parse_columns(f"field {written}")
    assert (column.name, str(column.type)) == ("field", type_)
    assert parse_columns(write_columns([column])) == (column,)


def test_columns_are_divided_outside_of_types_alone() -> None:
    columns = parse_columns("a struct<x int, y decimal(6,2)>, b.c as d map<string, int>, e decimal(4,1)")
    assert [each.name for each in columns] == ["a", "d", "e"]
    assert columns[1].source == ("b", "c")
    assert write_columns(columns) == "a struct<x int, y decimal(6,2)>, b.c as d map<string, int>, e decimal(4,1)"


def test_type_is_a_value_made_of_values() -> None:
    assert parse_type("array<array<int>>") == ArrayOf(ArrayOf(Integer.INT))
    assert parse_type("struct<a decimal(4), b map<string, date>>") == StructOf(
        (StructField("a", DecimalOf(4, 0)), StructField("b", MapOf(Scalar.DATE)))
    )


@pytest.mark.parametrize("text", [*NAMED_TYPES, "decimal(38,9)", "struct<a array<byte>, b map<string, dec(2)>>"])
def test_type_keeps_its_name_and_stays_itself_as_text_and_as_pickle(text: str) -> None:
    type_ = parse_type(text)
    assert str(type_) == text.replace("dec(2)", "decimal(2,0)")
    assert parse_type(str(type_)) == type_
    assert pickle.loads(pickle.dumps(type_)) == type_  # noqa: S301


def test_path_of_the_columns_own_name_is_none() -> None:
    assert parse_columns("id as id bigint") == parse_columns("id bigint")


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        ("a array<>", "column 'a': type '' is not known"),
        ("a array<int, int>", "'array<int, int>' has another number of types than array<type>"),
        ("a map<string>", "'map<string>' has another number of types than map<string, type>"),
        ("a map<int, int>", "the names of a map are texts; write map<string, type>"),
        ("a struct<>", "'' is not a field; write struct<name type, name type>"),
        ("a struct<b>", "'b' is not a field"),
        ("a struct<b int, B string>", "column 'a': field 'B' appears twice"),
        ("a struct<b array<strin>>", "column 'a': field 'b': type 'strin' is not known; allowed are string"),
        ("a array<int", "type 'array<int' is not known"),
        ("a array<int>>", "type 'int>' is not known"),
        (f"a {'array<' * 21}int{'>' * 21}", "more than 20 types lie within each other"),
        ("a struct<b jsonb>", "jsonb is a column of its own"),
        ("a..b as c int", "'a..b' is no path"),
        ("a.b as c struct<d int>, a.b.d as e int", "column 'e' is a part of column 'c'"),
    ],
)
def test_type_that_cannot_be_is_refused_with_what_is_allowed(schema: str, why: str) -> None:
    with pytest.raises(ValueError, match=r"column '") as refused:
        parse_columns(schema)
    assert why in str(refused.value)
