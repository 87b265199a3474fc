"""``batchledger watch --missing`` on real services: rows that a table lacks are listed, shown and brought back."""

import json
import os
import shlex
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from psycopg import sql

from batchledger.config.pipeline_file import read_pipeline_file
from tests.integration.test_cli import ask, batchledger
from tests.runner import let_run
from tests.support import TestPipeline, Workplace, delete_records
from tests.watched import write_watch

RECORDS = 20


@pytest.fixture
def shop(workplace: Workplace) -> Iterator[TestPipeline]:
    """A topic of two partitions, a table that another writer has filled, and a watch of the topic's name."""
    shop = workplace.create()
    shop.send(RECORDS)
    columns = "kafka_partition int, kafka_offset bigint, message_id text, number int, amount double precision"
    run(shop, f"create table {{table}} ({columns})")
    run(
        shop,
        "insert into {table} select mod(at, 2), at / 2, sent, at, at / 4.0 from unnest(%s::text[]) with ordinality "
        "as s (sent, number), lateral (select number::int - 1 as at) n",
        shop.sent,
    )
    write_watch(workplace.folder, workplace.dsn, shop.name, shop.name, f"public.{shop.name}_rows")
    yield shop
    (workplace.folder / f"{shop.name}_missing.yaml").unlink(missing_ok=True)


def run(shop: TestPipeline, statement: str, *values: Any) -> None:
    """Run a statement, which names the watched table as ``{table}``."""
    with psycopg.connect(shop.workplace.dsn) as connection:
        named = sql.SQL(statement).format(table=sql.Identifier(f"{shop.name}_rows"))
        connection.execute(named, values or None)


def ask_missing(watch: str, *more: str) -> Any:
    """The document of a look that finds rows missing, which ends with the exit code of a wrong table."""
    done = batchledger("watch", watch, "--missing", "--json", *more)
    assert done.returncode == 3, done.stderr
    return json.loads(done.stdout)[0]


def take_away(shop: TestPipeline, partition: int, *offsets: int) -> None:
    """Delete rows of the watched table."""
    rows = "delete from {table} where kafka_partition = %s and kafka_offset = any(%s)"
    run(shop, rows, partition, list(offsets))


def test_pipeline_brings_exactly_the_missing_records_and_the_table_is_proved(shop: TestPipeline) -> None:
    """One row was proved before it was deleted, two never came; and others write on."""
    take_away(shop, 1, 3, 4)
    assert batchledger("watch", shop.name).returncode == 3
    take_away(shop, 0, 7)
    listed = ask_missing(shop.name)
    name = f"{shop.name}_missing"
    assert (listed["missing"], listed["deleted"]) == ([f"{shop.name}[1] 3..5"], [f"{shop.name}[0] 7..8"])
    written = ask_missing(shop.name, "--as-pipeline", name)
    assert written["schema"] == "message_id string, number bigint, amount double"
    again = batchledger("watch", shop.name, "--missing", "--as-pipeline", name)
    for each in (*written["orders"], written["insert"]):
        assert each in again.stdout
    let_run(shop.workplace.dsn, name)
    (order,) = written["orders"]
    program, *arguments = shlex.split(order)
    assert program == "batchledger"
    ask(*arguments)
    missing = [(0, 7, shop.sent[14]), (1, 3, shop.sent[7]), (1, 4, shop.sent[9])]
    with psycopg.connect(shop.workplace.dsn) as connection:
        brought = sql.SQL("select _partition, _offset, message_id from {} order by 1, 2").format(sql.Identifier(name))
        assert connection.execute(brought).fetchall() == missing
        assert connection.execute(written["insert"]).rowcount == 3
        # A row that is there is not inserted once more.
        assert connection.execute(written["insert"]).rowcount == 0
    assert ask("watch", shop.name)[0]["outcome"] == "proved"
    assert ask("verify", name)["holds"]
    assert ask("run", name) == []
    assert read_pipeline_file(shop.workplace.folder / f"{name}.yaml").dag.tasks == "none"


def test_file_that_a_person_has_corrected_is_used_again_and_another_one_is_refused(shop: TestPipeline) -> None:
    take_away(shop, 1, 3)
    name = f"{shop.name}_missing"
    order = ("watch", shop.name, "--missing", "--as-pipeline")
    ask_missing(shop.name, "--as-pipeline", name, "--schema", "message_id string")
    path = shop.workplace.folder / f"{name}.yaml"
    corrected = path.read_text().replace("message_id string", "message_id string, number int")
    path.write_text(corrected)
    assert ask_missing(shop.name, "--as-pipeline", name)["schema"] == "message_id string, number int"
    refused = batchledger(*order, name, "--schema", "number int")
    assert (refused.returncode, path.read_text()) == (2, corrected)
    assert "Nothing was written" in refused.stderr
    other = shop.workplace.create()
    assert "It is another pipeline" in batchledger(*order, other.name).stderr
    assert batchledger(*order, "Not A Name", "--schema", "a int").returncode == 2


def test_records_are_not_shown_if_the_look_at_them_cannot_be_recorded(shop: TestPipeline) -> None:
    take_away(shop, 0, 1)
    run(shop, "revoke insert on batchledger.payload_look from runner")
    try:
        refused = batchledger("watch", shop.name, "--missing", "--records")
    finally:
        columns = "pipeline, batch_id, records, ranges, errors, looked_by, uid, host"
        run(shop, f"grant insert ({columns}) on batchledger.payload_look to runner")
    assert refused.returncode == 2
    assert shop.sent[2] not in refused.stdout + refused.stderr


def test_values_that_are_no_json_need_a_schema_from_a_person(shop: TestPipeline) -> None:
    other = shop.workplace.create(partitions=1)
    other.send_raw([(0, b"\x00avro")])
    write_watch(other.path.parent, shop.workplace.dsn, other.name, other.name, f"{shop.name}_rows")
    take_away(shop, 0, 0)
    refused = batchledger("watch", other.name, "--missing", "--as-pipeline", f"{other.name}_missing")
    assert refused.returncode == 2
    assert "--schema" in refused.stderr


def test_missing_records_are_shown_and_the_ledger_keeps_who_has_looked(shop: TestPipeline) -> None:
    take_away(shop, 0, 1, 2)
    delete_records(shop.workplace.kafka_options, shop.name, 0, 1)
    take_away(shop, 1, 5)
    shown = ask_missing(shop.name, "--records")
    assert [(each["partition"], each["offset"]) for each in shown["records"]] == [(0, 1), (0, 2), (1, 5)]
    assert json.loads(shown["records"][0]["value"])["message_id"] == shop.sent[2]
    (look,) = ask("looks", shop.name)
    assert (look["records"], look["actor"]["uid"]) == (3, os.getuid())
    assert look["ranges"] == [f"{shop.name}[0] 1..3", f"{shop.name}[1] 5..6"]
    assert ask_missing(shop.name, "--records", "--limit", "1")["is_cut"]


def test_list_shows_no_payload_and_notes_no_look(shop: TestPipeline) -> None:
    take_away(shop, 0, 1)
    shown = batchledger("watch", shop.name, "--missing").stdout
    assert f"{shop.name}[0] 1..2" in shown
    assert shop.sent[2] not in shown
    assert ask("looks", shop.name) == []


def test_every_missing_range_is_listed_however_many(shop: TestPipeline) -> None:
    shop.send(4_000)
    run(shop, "insert into {table} select n, at, 'x' from generate_series(11, 2009, 2) at, generate_series(0, 1) n")
    listed = ask_missing(shop.name)["missing"]
    assert len(listed) == 2_000
    written = ask_missing(shop.name, "--as-pipeline", f"{shop.name}_missing")
    assert [each.count("--range") for each in written["orders"]] == [1_000, 1_000]


def test_row_deleted_after_its_proof_is_listed_once_a_look_has_read_it_again(
    shop: TestPipeline, workplace: Workplace
) -> None:
    write_watch(workplace.folder, workplace.dsn, shop.name, shop.name, f"{shop.name}_rows", recheck=0)
    ask("watch", shop.name)
    take_away(shop, 1, 5)
    assert ask("watch", shop.name, "--missing")[0]["deleted"] == []
    for more in (["--all"], []):
        assert ask_missing(shop.name, *more)["deleted"] == [f"{shop.name}[1] 5..6"]
