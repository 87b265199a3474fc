"""SQL of a transform: what makes one row of one row is taken apart, anything else is refused with its place."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchledger.model.records.row_query import RowQuery, read_row_query
from batchledger.model.records.sql_words import (
    CLAUSES,
    FUNCTIONS,
    FUNCTIONS_BY_KIND,
    NAMES_OF_FUNCTIONS,
    OPERATORS,
    REASON_BY_FUNCTION,
)
from tests.conftest import ROOT

PROVENANCE = ("_topic", "_partition", "_offset", "_timestamp")
COLUMNS = ("id", "Amount", "items", "customer", "table", "payments", "r", "user", *PROVENANCE)

REFUSED = [
    ("", 1, 1, "it is no SELECT"),
    ("delete from rows", 1, 1, "it is no SELECT"),
    ("with x as (select 1) select * from rows", 1, 1, "it is no SELECT"),
    ("values (1)", 1, 1, "it is no SELECT"),
    ("from rows select id", 1, 1, "it is no SELECT"),
    ("(select id from rows)", 1, 1, "it is no SELECT"),
    ("select id", 1, 8, "there is no FROM"),
    ("select id from", 1, 11, "the only table is rows"),
    ("select id from orders", 1, 16, "the only table is rows"),
    ("select id from lake.rows", 1, 16, "the only table is rows"),
    ("select id from `rows`", 1, 16, "the only table is rows"),
    ("select id from parquet.`/etc`", 1, 16, "the only table is rows"),
    ("select id from read_files('/etc')", 1, 16, "the only table is rows"),
    ("select id from range(3)", 1, 16, "the only table is rows"),
    ("select id from (select 1)", 1, 16, "the only table is rows"),
    ("select id from rows r", 1, 21, "only a WHERE"),
    ("select id from rows, payments", 1, 20, "only a WHERE"),
    ("select id from rows; drop table x", 1, 20, "only a WHERE"),
    ("select id from rows where true; select 1 from rows", 1, 31, "one statement is all"),
    ("select id from rows where", 1, 21, "WHERE has no condition"),
    ("select id\nfrom rows\n  join payments", 3, 3, "no join"),
    ("select id from rows where id > 0 cross join payments", 1, 34, "no join"),
    ("select id from rows where true where false", 1, 32, "only one WHERE"),
    ("select (select 1) as x from rows", 1, 9, "no subquery"),
    ("select id from rows where id in (select id from payments)", 1, 34, "no subquery"),
    ("select exists(from payments) as x from rows", 1, 15, "no subquery"),
    ("select (table payments) as x from rows", 1, 9, "no subquery"),
    ("select trim(from payments) as x from rows", 1, 13, "no subquery"),
    ("select id from rows where id from payments", 1, 30, "no subquery"),
    ("select sum(Amount) as x from rows", 1, 8, "function 'sum' is not allowed: it is an aggregate"),
    ("select count(*) as x from rows", 1, 8, "it is an aggregate"),
    ("select id from rows group by id", 1, 21, "no GROUP BY"),
    ("select id from rows having id > 1", 1, 21, "no GROUP BY or HAVING"),
    ("select abs(id) over (order by id) as x from rows", 1, 16, "no window"),
    ("select row_number() as x from rows", 1, 8, "it looks at several rows"),
    ("select distinct id from rows", 1, 8, "no DISTINCT"),
    ("select id from rows order by id", 1, 21, "no ORDER BY"),
    ("select id from rows sort by id", 1, 21, "no ORDER BY"),
    ("select id from rows limit 3", 1, 21, "no LIMIT"),
    ("select id from rows where true limit 3", 1, 32, "no LIMIT"),
    ("select id from rows offset 3", 1, 21, "no LIMIT"),
    ("select id from rows tablesample (1 rows)", 1, 21, "no LIMIT"),
    ("select id from rows union all select id from rows", 1, 21, "no UNION"),
    ("select id from rows where true except select 1", 1, 32, "no UNION"),
    ("select id from rows lateral view explode(items) t as x", 1, 21, "one row may not become several"),
    ("select explode(items) as x from rows", 1, 8, "it makes several rows"),
    ("select json_tuple(id, 'a') as x from rows", 1, 8, "it makes several rows, or several columns"),
    ("select rand() as x from rows", 1, 8, "a replay would differ"),
    ("select `rand`() as x from rows", 1, 8, "function 'rand' is not allowed"),
    ("select coalesce(id, uuid()) as x from rows", 1, 21, "a replay would differ"),
    ("select items[shuffle(items)[0]] as x from rows", 1, 14, "a replay would differ"),
    ("select current_timestamp() as x from rows", 1, 8, "a replay would differ"),
    ("select current_timestamp as x from rows", 1, 8, "rows has no column 'current_timestamp'"),
    ("select id as current_date, current_date as x from rows", 1, 28, "rows has no column 'current_date'"),
    ("select transform(items, current_user -> 1) as x, current_user as y from rows", 1, 25, "rows has no column"),
    ("select timestamp'now' as x from rows", 1, 17, "the moment in which it runs"),
    ("select cast(' Today UTC' as date) as x from rows", 1, 13, "the moment in which it runs"),
    ("select r'now' as x from rows", 1, 8, "the moment in which it runs"),
    ("select input_file_name() as x from rows", 1, 8, "it reaches outside"),
    ("select java_method('java.lang.System', 'exit') as x from rows", 1, 8, "it reaches outside"),
    ("select version() as x from rows", 1, 8, "it reaches outside"),
    ("select shop.upper(id) as x from rows", 1, 8, "rows has no column 'shop'"),
    ("select customer.upper(id) as x from rows", 1, 17, "function 'upper' is not allowed"),
    ("select my_function(id) as x from rows", 1, 8, "the documentation lists all that are"),
    ("select '${env:HOME}' as x from rows", 1, 8, "settings of its server"),
    ("select id as `${env:HOME}` from rows", 1, 14, "settings of its server"),
    ("select ${x} as y from rows", 1, 8, "no variables"),
    ("select id from rows where id = :x", 1, 32, "no parameters"),
    ("select id from rows where id = ?", 1, 32, "no parameters"),
    ("select /*+ broadcast(rows) */ id from rows", 1, 8, "no comment or hint"),
    ("select id -- all\nfrom rows", 1, 11, "no comment or hint"),
    ('select "id" from rows', 1, 8, "write texts in single quotes"),
    ("select id\u00a0from rows", 1, 10, "not allowed here"),
    ("select id from rows where id = 'x", 1, 32, "this text does not end"),
    ("select `id from rows", 1, 8, "this name does not end"),
    ("select (id from rows", 1, 17, "a bracket ( is not closed"),
    ("select id) from rows", 1, 10, ") closes no bracket"),
    ("select items[0) as x from rows", 1, 15, ") closes no bracket"),
    ("select " + "(" * 33 + "id" + ")" * 33 + " as x from rows", 1, 40, "more than 32 brackets"),
    (r"select timestamp'\tnow' as x from rows", 1, 17, "the moment in which it runs"),
    (r"select cast('\0now' as timestamp) as x from rows", 1, 13, "the moment in which it runs"),
    (r"select cast('now\u0001' as timestamp) as x from rows", 1, 13, "the moment in which it runs"),
    ("select timestamp'now \t' as x from rows", 1, 17, "the moment in which it runs"),
    ("select cast('no' 'w' as timestamp) as x from rows", 1, 18, "the moment in which it runs"),
    (r"select timestamp'\156ow' as x from rows", 1, 17, "the moment in which it runs"),
    (r"select cast('\u006eo\U00000077' as timestamp) as x from rows", 1, 13, "the moment in which it runs"),
    ("select amuont from rows", 1, 8, "rows has no column 'amuont'; did you mean Amount?"),
    ("select id gross from rows", 1, 11, "rows has no column 'gross'; a new name stands behind as"),
    ("select id * 2 from rows", 1, 8, "this column has no name"),
    ("select id customer from rows", 1, 8, "this column has no name"),
    ("select rows.* from rows", 1, 8, "this column has no name"),
    ("select id, from rows", 1, 1, "a column is missing"),
    ("select *, id from rows", 1, 11, "id is there twice; write another name, or * except (id)"),
    ("select id, Amount as ID from rows", 1, 12, "ID is there twice"),
    ("select *, 1 as _offset from rows", 1, 16, "_offset says where the record lies"),
    ("select customer._timestamp, id from rows", 1, 17, "_timestamp says where the record lies"),
    ("select * except (id, _offset) from rows", 1, 22, "_offset says where the record lies"),
    ("select * except (idd) from rows", 1, 18, "rows has no column 'idd'"),
    ("select * except id from rows", 1, 10, "a star stands alone"),
    ("select * replace (1 as id) from rows", 1, 10, "a star stands alone"),
]


@pytest.mark.parametrize(("text", "line", "column", "words"), REFUSED, ids=[each[0][:40] for each in REFUSED])
def test_what_is_no_expression_over_one_row_is_refused_with_its_place(
    text: str, line: int, column: int, words: str
) -> None:
    with pytest.raises(ValueError, match=r"^line") as told:
        read_row_query(text, COLUMNS)
    assert str(told.value).startswith(f"line {line}, column {column}: ")
    assert words in str(told.value)
    assert len(str(told.value)) < 250


ACCEPTED = [
    ("select *, Amount * 1.2 as gross from rows where Amount > 0;", ["*", "Amount * 1.2 as gross"], "Amount > 0"),
    ("SELECT id FROM Rows", ["id"], None),
    ("select rows.id, customer.name.first from rows", ["rows.id", "customer.name.first"], None),
    ("select id*2 as a, a + 1 as b from rows", ["id*2 as a", "a + 1 as b"], None),
    ("select * except (Amount), Amount / 2 as Amount from rows", ["* except (Amount)", "Amount / 2 as Amount"], None),
    ("select `table`, `payments` from rows", ["`table`", "`payments`"], None),
    ("select r'\\' as a, ' from ' as b from rows", ["r'\\' as a", "' from ' as b"], None),
    ("select 'it''s \\' , x' as a from rows", ["'it''s \\' , x' as a"], None),
    ("select 'now and then' as a, 'nowhere' as b from rows", ["'now and then' as a", "'nowhere' as b"], None),
    ("select extract(year from _timestamp) as y from rows", ["extract(year from _timestamp) as y"], None),
    ("select trim(both 'x' from id) as y from rows", ["trim(both 'x' from id) as y"], None),
    ("select id::int as n, cast(id as dec(9, 2)) as d from rows", ["id::int as n", "cast(id as dec(9, 2)) as d"], None),
    ("select transform(items, x -> x.price) as p from rows", ["transform(items, x -> x.price) as p"], None),
    ("select aggregate(items, 0, (a, x) -> a + x) as s from rows", ["aggregate(items, 0, (a, x) -> a + x) as s"], None),
    ("select user as u from rows where not (id in (1) or r like 'x')", ["user as u"], "not (id in (1) or r like 'x')"),
    ("select\n case when r > 1e3 then 1 end as big\nfrom rows", ["case when r > 1e3 then 1 end as big"], None),
    ("select date '2026-11-01' + interval 1 day as d from rows", ["date '2026-11-01' + interval 1 day as d"], None),
]  # fmt: skip


@pytest.mark.parametrize(("text", "items", "condition"), ACCEPTED, ids=[each[0][:40] for each in ACCEPTED])
def test_each_part_goes_to_spark_as_the_person_wrote_it(text: str, items: list[str], condition: str | None) -> None:
    query = read_row_query(text, COLUMNS)
    assert (list(query.items), query.condition) == (items, condition)


def test_rows_keep_where_their_record_lies_without_a_word_of_it() -> None:
    assert read_row_query("select id from rows", COLUMNS).list_carried(PROVENANCE) == [*PROVENANCE]
    assert read_row_query("select _offset, id from rows", COLUMNS).list_carried(("_topic", "_offset")) == ["_topic"]
    assert read_row_query("select * from rows", COLUMNS).list_carried(PROVENANCE) == []


@pytest.mark.parametrize(
    ("text", "columns", "is_answer"),
    [
        ("select id, 1 as n from rows", ["ID", "n", "_topic"], True),
        ("select id, 1 as n from rows", ["n", "id", "_topic"], False),
        ("select 1 as a, *, 2 as b from rows", ["a", "id", "_topic", "b"], True),
        ("select 1 as a, *, 2 as b from rows", ["a", "id", "b", "_topic"], False),
        ("select * from rows", ["id"], True),
    ],
)
def test_columns_that_spark_makes_tell_whether_it_has_read_the_same(
    text: str, columns: list[str], is_answer: bool
) -> None:
    assert read_row_query(text, COLUMNS).is_answered_by(columns) is is_answer


WORDS = sorted({*OPERATORS, *CLAUSES, *REASON_BY_FUNCTION, *NAMES_OF_FUNCTIONS, *COLUMNS, "upper", "coalesce", "x"})
SIGNS = ["(", ")", ",", "*", "+", "->", "=", ".", "[", "]", "'a'", "`id`", "1", ";", "--", "as y"]
TEXTS = st.lists(st.sampled_from([*WORDS, *SIGNS]), max_size=8).map(" ".join)


def read_or_refuse(text: str) -> RowQuery | str:
    try:
        return read_row_query(text, COLUMNS)
    except ValueError as error:
        return str(error)


@given(TEXTS, st.sampled_from(["as y from rows", "from rows", "as y from rows where id"]), TEXTS)
def test_no_words_in_any_order_get_past(item: str, middle: str, tail: str) -> None:
    """What is accepted has no clause, and calls functions of the list alone."""
    found = read_or_refuse(f"select {item} {middle} {tail}")
    for part in () if isinstance(found, str) else (*found.items, found.condition or ""):
        words = re.findall(r"(?<!`)\b[a-z_]+\b(?!`)", part)
        assert {each for each in words if each in CLAUSES} <= {"except", "from"}
        assert set(re.findall(r"([a-z_0-9]+) *\(", part)) - OPERATORS - {"except"} <= FUNCTIONS


@given(st.text(max_size=60))
def test_any_text_is_read_or_refused_in_words(text: str) -> None:
    for form in ("{}", "select {} from rows", "select id from rows where {}"):
        found = read_or_refuse(form.format(text))
        assert isinstance(found, RowQuery) or re.match(r"line \d+, column \d+: ", found)


def test_page_lists_every_function() -> None:
    page = (ROOT / "docs" / "reference" / "sql.md").read_text(encoding="utf-8")
    for kind, functions in FUNCTIONS_BY_KIND.items():
        assert f"| {kind} | {' '.join(f'`{each}`' for each in sorted(functions))} |" in page


def test_no_function_is_listed_and_refused() -> None:
    assert FUNCTIONS.isdisjoint({*REASON_BY_FUNCTION, *CLAUSES})
