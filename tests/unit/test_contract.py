"""What ``batchledger schema`` says of sampled records and of a table; docs/guides/schema.md."""

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchledger.formats.decoding.sampling import MOST_FIELDS, look_at
from batchledger.model.records.columns import parse_columns
from batchledger.model.records.contract import (
    MOST_ADDED,
    Contract,
    SchemaChange,
    TableColumn,
    choose_added,
    describe_change,
    with_added,
)
from batchledger.model.records.outer import NO_OUTER, OuterColumns, parse_headers


def compare(schema: str, *documents: Any, raw: Sequence[bytes | None] = ()) -> Contract:
    """A schema beside records."""
    columns = parse_columns(schema)
    return Contract(columns, look_at([*(json.dumps(each).encode() for each in documents), *raw], columns))


def proposed(*values: Any) -> str | None:
    """The type of an undeclared field that has had these values."""
    contract = compare("id bigint", *({"field": each} for each in values))
    (found,) = contract.differences
    assert found.change is SchemaChange.ADDITIVE
    return found.declare and found.declare.removeprefix("field ")


@pytest.mark.parametrize(
    ("values", "type_"),
    [
        ([1, -2], "bigint"),
        ([1, None], "bigint"),
        ([None], "string"),
        ([2**63], "decimal(38,0)"),
        ([1, 0.5], "double"),
        ([True, False], "boolean"),
        ([True, 1], "string"),
        (["2026-11-25"], "date"),
        (["2026-11-25T10:00:00Z", "2026-11-25 10:00:00+01:00"], "timestamp"),
        (["2026-11-25", "2026-11-25T10:00:00Z"], "string"),
        (["text", 1], "string"),
        (["\x00"], None),
        ([{"deep": 1}], "string"),
        ([[1, 2]], "string"),
        ([10**40], "double"),
    ],
    ids=str,
)
def test_field_that_is_not_declared_gets_the_narrowest_type_that_holds_all_values(
    values: Sequence[Any], type_: str | None
) -> None:
    assert proposed(*values) == type_


@given(
    st.lists(
        st.none()
        | st.booleans()
        | st.integers()
        | st.floats(allow_nan=False, allow_infinity=False)
        | st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=12)
        | st.dates().map(str),
        min_size=1,
        max_size=5,
    )
)
def test_schema_that_is_proposed_takes_all_records_that_it_is_made_of(values: Sequence[Any]) -> None:
    documents = [{"id": 1, "field": each} for each in values]
    contract = compare("id bigint", *documents)
    assert compare(contract.proposal, *documents).differences == []


@pytest.mark.parametrize(
    ("schema", "value", "change", "declare"),
    [
        ("field int", 2**40, SchemaChange.WIDENING, "field bigint"),
        ("field tinyint", 300, SchemaChange.WIDENING, "field smallint"),
        ("field int", 2**70, SchemaChange.BREAKING, None),
        ("field bigint", "12", SchemaChange.BREAKING, None),
        ("field decimal(4,2)", 123.45, SchemaChange.WIDENING, "field decimal(5,2)"),
        ("field decimal(4,2)", 1.105, SchemaChange.BREAKING, None),
        ("field date", "yesterday", SchemaChange.BREAKING, None),
        ("field float", 16777217, SchemaChange.WIDENING, "field double"),
    ],
)
def test_value_that_does_not_fit_is_widening_if_a_wider_type_holds_all_and_else_breaking(
    schema: str, value: Any, change: SchemaChange, declare: str | None
) -> None:
    contract = compare(schema, {"field": 1 if "date" not in schema else None}, {"field": value})
    (found,) = contract.differences
    assert (found.change, found.declare) == (change, declare)
    assert contract.is_broken is (change is SchemaChange.BREAKING)
    assert "1 of 2 values does not fit" in found.told


def test_name_that_no_column_can_have_gets_an_alias_unless_no_path_leads_there() -> None:
    contract = compare("id bigint", {"id": 1, "a b": 2, "_rest": 3, "xmin": 3, "fine": 4})
    assert contract.proposal == "id bigint, _rest as rest bigint, xmin as xmin_2 bigint, fine bigint"
    assert [(each.column, each.declare) for each in contract.differences] == [
        ("a b", None),
        ("_rest", "_rest as rest bigint"),
        ("xmin", "xmin as xmin_2 bigint"),
        ("fine", "fine bigint"),
    ]


def test_names_that_differ_by_case_alone_are_not_proposed_together() -> None:
    contract = compare("id bigint", {"id": 1, "ID": 2, "Tax": 3, "tax": 4})
    assert contract.proposal == "id bigint, Tax bigint"
    assert [each.column for each in contract.differences if each.declare is None] == ["ID", "tax"]


def test_name_that_is_no_line_of_text_is_written_as_one() -> None:
    (found,) = compare("id bigint", {"\x1b[31mred\n": 1}).differences
    assert found.column == "\\u001b[31mred\\n"


def test_records_without_a_value_and_without_json_are_no_fields() -> None:
    contract = compare("id bigint", {"id": 1}, raw=[None, b"{", b"[]"])
    assert contract.sample is not None
    assert (contract.sample.records, contract.sample.unreadable, contract.differences) == (1, 2, [])


def test_names_without_end_do_not_fill_the_memory() -> None:
    contract = compare("id bigint", *({f"name{number}": 1} for number in range(MOST_FIELDS + 500)))
    assert contract.sample is not None
    assert len(contract.sample.fields) == MOST_FIELDS


def test_table_that_differs_is_told_with_the_statement_that_it_takes() -> None:
    table = [
        TableColumn("id", "bigint", "bigint", None),
        TableColumn(
            "discount",
            None,
            "double precision",
            SchemaChange.ADDITIVE,
            "ALTER TABLE t ADD COLUMN discount double precision",
        ),
        TableColumn(
            "number", "integer", "bigint", SchemaChange.WIDENING, "ALTER TABLE t ALTER COLUMN number TYPE bigint"
        ),
        TableColumn("tax", "integer", None, SchemaChange.BREAKING),
        TableColumn("note", "integer", "text", SchemaChange.BREAKING),
    ]
    contract = Contract(parse_columns("id bigint"), table=table)
    told = {each.column: (each.change, each.told) for each in contract.differences}
    assert told == {
        "discount": (SchemaChange.ADDITIVE, "declared, and the table has no such column"),
        "number": (SchemaChange.WIDENING, "the table has it as integer, and rows would have bigint"),
        "tax": (SchemaChange.BREAKING, "the table has it, as integer, it must not be null, and no row would fill it"),
        "note": (SchemaChange.BREAKING, "the table has it as integer, and rows would have text"),
    }
    assert contract.is_broken


def test_columns_that_records_bring_are_texts_behind_the_declared_ones() -> None:
    columns = parse_columns("id int, tax double")
    outer = OuterColumns(headers=parse_headers({"tenant": "header tenant string"}))
    assert with_added(columns, ["note", "Tax", "TENANT", "note2", "NOTE"], outer) == (
        *columns,
        *parse_columns("note string, note2 string"),
    )
    assert with_added(columns, [], NO_OUTER) == columns


def test_only_names_that_a_column_can_have_are_added_and_not_without_end() -> None:
    assert choose_added(["a", "a b", "_rest", "known", "b"], {"known"}) == ["a", "b"]
    known = {f"n{number}" for number in range(MOST_ADDED - 1)}
    assert choose_added(["a", "b"], known) == ["a"]
    assert choose_added(["a", "b"], {*known, "x"}) == []


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        ("id int", "id int, note string", "note string is new"),
        ("id int, note string", "id int", "note string is gone"),
        ("id int", "id bigint", "id int is bigint"),
        ("id int, tax double", "tax double, id int", "the order of the columns"),
    ],
)
def test_change_of_a_schema_is_told_by_its_columns(before: str, after: str, told: str) -> None:
    assert describe_change(before, after) == told
