"""``batchledger schema`` on real services: what is declared beside what records and tables have."""

import hashlib
import json
import re
from collections.abc import Sequence
from typing import Any

import psycopg
import pytest
import yaml
from airflow.providers.apache.spark.hooks.spark_connect import SparkConnectHook
from psycopg import sql

from batchledger.lifecycle import run_batch
from batchledger.settings.connections import load_connection
from batchledger.sinks.iceberg.catalog import open_catalog, spark_settings
from batchledger.source.spark.session import open_connect_session
from tests.integration.test_cli import ask, batchledger
from tests.support import TestPipeline, Workplace

DECLARED = "message_id string, number int"
BREAKING = 3


def send(pipeline: TestPipeline, *documents: Any) -> None:
    pipeline.send_raw((0, json.dumps(each).encode()) for each in documents)


def told_by(pipeline: TestPipeline, *options: str, code: int = 0) -> dict[str, tuple[str, Any, Any]]:
    """Change, line of the file and statement, by column."""
    done = batchledger("schema", pipeline.name, "--json", *options)
    assert done.returncode == code, done.stderr
    differences = json.loads(done.stdout)["differences"]
    return {each["column"]: (each["change"], each["declare"], each["statement"]) for each in differences}


def alter(pipeline: TestPipeline, *clauses: str) -> None:
    """Change the table as its owner would."""
    with psycopg.connect(pipeline.workplace.dsn) as connection:
        for each in clauses:
            connection.execute(
                sql.SQL("alter table {} " + each).format(sql.Identifier(f"{pipeline.name}_target"))  # type: ignore[arg-type]
            )


def test_records_that_differ_are_told_with_the_line_of_the_file(workplace: Workplace) -> None:
    pipeline = workplace.create(source={"schema": DECLARED})
    send(pipeline, {"message_id": "a", "number": 1}, {"message_id": "b", "number": 2**40, "tax": 0.5})
    assert told_by(pipeline) == {}
    assert told_by(pipeline, "--from-topic") == {
        "number": ("widening", "number bigint", None),
        "tax": ("additive", "tax double", None),
    }
    send(pipeline, {"message_id": "c", "number": "three"})
    assert told_by(pipeline, "--from-topic", code=BREAKING)["number"] == ("breaking", None, None)
    assert told_by(pipeline, "--from-topic", "--records", "2", code=BREAKING).keys() == {"number", "tax"}


@pytest.mark.parametrize("into", ["table", "lake"])
def test_schema_that_is_proposed_and_the_statements_make_the_next_batch_fit(workplace: Workplace, into: str) -> None:
    """As a person would: they paste the line, and let publications change the table."""
    pipeline = workplace.create(into=into, partitions=1, source={"schema": DECLARED})
    send(pipeline, {"message_id": "a", "number": 1})
    run_batch.run_once(pipeline.platform(), "first")
    send(pipeline, {"message_id": "b", "number": 2**40, "tax": 0.5})
    shown = ask("schema", pipeline.name, "--from-topic")
    text = pipeline.path.read_text().replace(DECLARED, shown["proposal"])
    pipeline.path.write_text(text.replace("sink:\n", "sink:\n  evolve: widen\n"))
    target = f"lake.tests.{pipeline.name}_target" if into == "lake" else f'"public"."{pipeline.name}_target"'
    number, tax = ("number", "tax") if into == "lake" else ('"number"', '"tax"')
    double = "double" if into == "lake" else "double precision"
    assert told_by(pipeline, "--from-topic") == {
        "number": ("widening", None, f"alter table {target} alter column {number} type bigint"),
        "tax": ("additive", None, f"alter table {target} add column {tax} {double}"),
    }
    run_batch.run_once(pipeline.platform(), "second")
    assert told_by(pipeline, "--from-topic") == {}
    assert pipeline.count_target_rows() == 2


@pytest.mark.parametrize("into", ["table", "lake"])
def test_differences_within_values_are_told_by_path_until_line_and_publication_have_mended_them(
    workplace: Workplace, into: str
) -> None:
    declared = "message_id string, customer struct<id int>, items array<struct<price int>>"
    pipeline = workplace.create(into=into, partitions=1, source={"schema": declared}, sink={"evolve": "widen"})
    send(pipeline, {"message_id": "a", "customer": {"id": 1}, "items": [{"price": 1}]})
    run_batch.run_once(pipeline.platform(), "first")
    send(pipeline, {"message_id": "b", "customer": {"id": 2**40, "zip": "x"}, "items": [{"price": 2**40, "n": 1}]})
    items = "items array<struct<price bigint, n bigint>>"
    customer = "customer struct<id bigint, zip string>"
    assert told_by(pipeline, "--from-topic") == {
        "customer.id": ("widening", customer, None),
        "customer.zip": ("additive", customer, None),
        "items[].price": ("widening", items, None),
        "items[].n": ("additive", items, None),
    }
    proposal = ask("schema", pipeline.name, "--from-topic")["proposal"]
    assert proposal == f"message_id string, {customer}, {items}"
    pipeline.path.write_text(pipeline.path.read_text().replace(declared, proposal))
    alter_, add = (f"alter table lake.tests.{pipeline.name}_target {each} column" for each in ("alter", "add"))
    found = {
        "customer.id": ("widening", None, f"{alter_} customer.id type bigint"),
        "customer.zip": ("additive", None, f"{add} customer.zip string"),
        "items[].price": ("widening", None, f"{alter_} items.element.price type bigint"),
        "items[].n": ("additive", None, f"{add} items.element.n bigint"),
    }
    # A table of PostgreSQL has such values as jsonb, which takes them.
    assert told_by(pipeline, "--from-topic") == (found if into == "lake" else {})
    planned = [each["column"] for each in ask("plan", pipeline.name)["differences"]]
    assert planned == ([*found] if into == "lake" else [])
    run_batch.run_once(pipeline.platform(), "second")
    assert told_by(pipeline, "--from-topic") == {}
    send(pipeline, {"message_id": "c", "customer": {"id": "one"}})
    assert told_by(pipeline, "--from-topic", code=BREAKING) == {"customer.id": ("breaking", None, None)}


def test_spark_runs_the_statements_for_an_iceberg_table_as_they_are_printed(workplace: Workplace) -> None:
    """As its owner would, in a Spark that has the catalog under the same name. Some words are Spark's own."""
    declared = (
        "message_id string, number int, end float, price decimal(8,2), customer struct<id int>, "
        "items array<struct<price int>>, by_day map<string, struct<n int>>, numbers array<int>"
    )
    wider = (
        "message_id string, number bigint, end double, price decimal(12,2), customer struct<id bigint, order string>, "
        "items array<struct<price bigint, tags array<string>>>, by_day map<string, struct<n bigint, at timestamp>>, "
        "numbers array<bigint>, table struct<from date, _x map<string, boolean>>, raw binary, more jsonb"
    )
    pipeline = workplace.create(into="lake", partitions=1, source={"schema": declared})
    send(pipeline, {"message_id": "a", "number": 1, "items": [{"price": 1}], "numbers": [1, None]})
    run_batch.run_once(pipeline.platform(), "first")
    assert pipeline.config.sink.type == "iceberg"
    catalog = open_catalog(load_connection(pipeline.config.sink.catalog))
    with catalog.opened.load_table(pipeline.config.sink.identifier).update_schema(
        allow_incompatible_changes=True
    ) as update:
        update.update_column("message_id", required=True)
    file = yaml.safe_load(pipeline.path.read_text())
    pipeline.path.write_text(yaml.safe_dump(file | {"source": {**file["source"], "schema": wider}}))
    found = told_by(pipeline, code=BREAKING)
    statements = [statement for _, _, statement in found.values() if statement]
    assert len(statements) == 14
    url = SparkConnectHook(conn_id="spark_default").get_connection_url()
    with open_connect_session(url, "an owner of tables") as session:
        for name, value in spark_settings(catalog).items():
            session.conf.set(name, value)
        for each in statements:
            session.sql(each)
    assert told_by(pipeline) == {}
    send(pipeline, {"message_id": "b", "number": 2**40, "customer": {"id": 2**40, "order": "x"}})
    run_batch.run_once(pipeline.platform(), "second")
    rows = {row["message_id"]: row for row in pipeline.read_output()}
    assert rows["a"]["items"] == [{"price": 1, "tags": None}]
    assert rows["b"]["customer"] == {"id": 2**40, "order": "x"}


def test_array_of_another_type_is_told_by_its_element(workplace: Workplace) -> None:
    pipeline = workplace.create(partitions=1, source={"schema": f"{DECLARED}, amounts array<double>"})
    send(pipeline, {"message_id": "a", "number": 1, "amounts": [1.5]})
    run_batch.run_once(pipeline.platform(), "first")
    alter(pipeline, "alter column amounts type integer[]")
    assert told_by(pipeline, code=BREAKING) == {"amounts[]": ("breaking", None, None)}
    alter(pipeline, "alter column amounts type real[]")
    widens = f'alter table "public"."{pipeline.name}_target" alter column "amounts" type double precision[]'
    assert told_by(pipeline) == {"amounts[]": ("widening", None, widens)}


@pytest.mark.parametrize(
    ("clauses", "column"),
    [
        (["alter column number type date using null"], "number"),
        (["alter column number type real"], "number"),
        (["add column owner text not null default ''", "alter column owner drop default"], "owner"),
        (["add column owner text not null default 'ana'", "add column id bigint generated always as identity"], None),
        (["alter column message_id type varchar(40)", "alter column number type text"], None),
    ],
)
def test_table_of_another_kind_is_breaking_and_one_that_takes_the_rows_is_no_difference(
    workplace: Workplace, clauses: Sequence[str], column: str | None
) -> None:
    pipeline = workplace.create(partitions=1, source={"schema": DECLARED})
    run = ask("schema", pipeline.name)
    assert run["is_table_compared"] is False
    send(pipeline, {"message_id": "a", "number": 1})
    run_batch.run_once(pipeline.platform(), "first")
    alter(pipeline, *clauses)
    found = told_by(pipeline, code=BREAKING if column else 0)
    assert {name: change for name, (change, _, _) in found.items()} == ({column: "breaking"} if column else {})
    assert [each["column"] for each in ask("plan", pipeline.name)["differences"]] == [*found]


def test_pipeline_file_is_proposed_for_a_topic_and_works_as_it_stands(workplace: Workplace) -> None:
    pipeline = workplace.create(partitions=3)
    documents = [
        {"order": n, "amount": 1.5, "on": "2026-11-25", "deep": {"a": [1]}, "a b": 1, "@at": n} for n in range(9)
    ]
    pipeline.send_raw((n % 3, json.dumps(each).encode()) for n, each in enumerate(documents))
    pipeline.send_raw([(0, b'{"order": 1')])
    shown = ask("schema", "--topic", pipeline.name)
    assert shown["proposal"] == "order bigint, amount double, on date, deep string, @at as at bigint"
    assert [each["column"] for each in shown["left_out"]] == ["a b"]
    (where, why), *others = shown["sample"]["faults"]
    assert (where, others) == (f"{pipeline.name}[0]@3", [])
    assert why == "the value is not exactly one JSON object: it ends early, after 11 bytes"
    text = batchledger("schema", "--topic", pipeline.name).stdout
    (workplace.folder / f"{pipeline.name}.yaml").write_text(text[text.index("name: ") :])
    run_batch.run_once(pipeline.platform(), "first")
    with psycopg.connect(workplace.dsn) as connection:
        query = sql.SQL("select count(*) from {}").format(sql.Identifier(pipeline.name))
        assert connection.execute(query).fetchall() == [(9,)]


def test_command_says_what_it_needs(workplace: Workplace) -> None:
    assert batchledger("schema").returncode == 2
    done = batchledger("schema", "--topic", "no-such-topic")
    assert (done.returncode, "has no topic no-such-topic" in done.stderr) == (2, True)


def test_ledger_keeps_each_schema_once_and_each_batch_names_its_own(workplace: Workplace) -> None:
    pipeline = workplace.create(partitions=1, source={"schema": DECLARED}, sink={"evolve": "add"})
    batches = []
    for schema in (DECLARED, DECLARED, f"{DECLARED}, tax double", DECLARED):
        pipeline.path.write_text(re.sub("schema: .*", f"schema: {schema}", pipeline.path.read_text()))
        send(pipeline, {"message_id": f"m{len(batches)}", "number": 1, "tax": 0.5})
        batch = run_batch.run_once(pipeline.platform(), f"run {len(batches)}")
        assert batch is not None
        batches.append(batch.batch_id)
    first, second, third, fourth = batches
    assert [ask("batch", str(each))["attempts"][0]["schema"] for each in (first, third)] == [
        DECLARED,
        f"{DECLARED}, tax double",
    ]
    versions = ask("schema", pipeline.name)["versions"]
    assert [(each["definition"], each["first_batch_id"], each["last_batch_id"]) for each in versions] == [
        (DECLARED, first, fourth),
        (f"{DECLARED}, tax double", third, third),
    ]
    assert [each["fingerprint"] for each in versions] == [
        hashlib.sha256(each["definition"].encode()).hexdigest() for each in versions
    ]
    shown = batchledger("schema", pipeline.name).stdout
    assert "tax double is gone" in shown
    assert second < third


def test_quarantine_is_published_again_under_the_new_schema(workplace: Workplace) -> None:
    pipeline = workplace.create(
        partitions=1, source={"schema": DECLARED, "unknown_fields": "quarantine"}, sink={"evolve": "add"}
    )
    send(pipeline, {"message_id": "a", "number": 1}, {"message_id": "b", "number": 2, "tax": 0.5})
    run_batch.run_once(pipeline.platform(), "first")
    assert pipeline.count_target_rows() == 1
    pipeline.path.write_text(re.sub("schema: .*", f"schema: {DECLARED}, tax double", pipeline.path.read_text()))
    done = batchledger("quarantine", "replay", pipeline.name, "--all", "--reason", "the tax is declared")
    assert done.returncode == 0, done.stderr
    assert pipeline.query("select message_id, tax from {target} order by 1") == [("a", None), ("b", 0.5)]
    assert [each["definition"] for each in ask("schema", pipeline.name)["versions"]] == [
        f"{DECLARED}, tax double",
        DECLARED,
    ]
