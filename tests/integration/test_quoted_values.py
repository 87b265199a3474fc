"""A value of a record that an error quotes is in the whole text of the error alone, and in no log.

A transform and a target raise a canary. Afterwards the ledger, the logs of this process and Spark's log are searched.
"""

import json
import logging
import traceback

import psycopg
import pytest

from batchledger.interfaces.airflow.terms import in_airflow_terms
from batchledger.lifecycle import run_batch
from batchledger.model.errors import BatchledgerError
from tests.conftest import TestServices, as_superuser
from tests.integration.test_cli import batchledger
from tests.leaks import find_leaks
from tests.pages import User, let_in, open_browser
from tests.support import TestPipeline, Workplace

CANARY = "canary-4111-1111"


def run(pipeline: TestPipeline) -> tuple[str, str]:
    """Run a batch that fails; return its error with all causes, as it is and as Airflow's log shows it."""
    told: list[str] = []
    with pytest.raises(Exception) as caught, in_airflow_terms():  # noqa: PT011, PT012 -- The texts are compared.
        try:
            run_batch.run_once(pipeline.platform(), "run")
        except BatchledgerError as error:
            told += traceback.format_exception(error)
            raise
    return "".join(told), "".join(traceback.format_exception(caught.value))


def read_ledger(pipeline: TestPipeline) -> tuple[str, str]:
    """All that is stored of attempts and checks, and the whole texts."""
    attempts = pipeline.query(
        "select to_jsonb(a) - 'quoted', a.quoted from batchledger.attempt a join batchledger.batch using (batch_id) "
        "where pipeline = %s",
        pipeline.name,
    )
    checks = pipeline.query(
        "select to_jsonb(c) from batchledger.check_result c join batchledger.batch using (batch_id) "
        "where pipeline = %s",
        pipeline.name,
    )
    return json.dumps([[each for each, _ in attempts], checks]), "\n".join(str(quoted) for _, quoted in attempts)


@pytest.mark.parametrize(
    ("transform", "told"),
    [
        ("quote_a_value", "ValueError was raised in "),
        ("return_a_value", " was raised in "),
        ("collect_a_value", "ValueError was raised in "),
        ("as_number", "(SQLSTATE 22018)"),
        ("as_day", "(SQLSTATE 22007)"),
        ("as_number_by_sql", "(SQLSTATE 22018)"),
        ("host_of_a_url", "(SQLSTATE 22P02)"),
        ("as_number_of_lines", "(SQLSTATE 22018)"),
    ],
)
def test_value_that_a_transform_raises_is_in_the_whole_text_alone(
    workplace: Workplace,
    services: TestServices,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
    transform: str,
    told: str,
) -> None:
    pipeline = workplace.create(partitions=1, transform=f"tests.transforms:{transform}")
    pipeline.send_raw([(0, json.dumps({"message_id": f"{CANARY}-{transform}", "number": 1}).encode())])
    log = services.home.log_file("spark")
    before = log.stat().st_size
    with caplog.at_level(logging.DEBUG, logger="batchledger"):
        _, shown = run(pipeline)
    stored, quoted = read_ledger(pipeline)
    assert told in stored
    assert f"{CANARY}-{transform}" in quoted
    places = {"Airflow": shown, "ledger": stored, "log": caplog.text, "output": "".join(capfd.readouterr())}
    places["Spark"] = log.read_bytes()[before:].decode()
    assert {place for place, text in places.items() if CANARY in text} == set()
    found = find_leaks({"canary": f"{CANARY}-{transform}"}, services.home.local, as_superuser(workplace.dsn))
    assert {place for place in found if not place.startswith("kafka/data/")} == {"warehouse.batchledger.attempt"}


def test_row_that_a_target_quotes_is_shown_in_full_to_who_may_trigger_alone(
    workplace: Workplace, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = workplace.create(partitions=1)
    pipeline.send(1, partitions=1)
    run_batch.run_once(pipeline.platform(), "first")
    with psycopg.connect(workplace.dsn) as connection:
        connection.execute(f'alter table "{pipeline.name}_target" add constraint small check (number < 5) not valid')
    pipeline.send_raw([(0, json.dumps({"message_id": CANARY, "number": 9}).encode())])
    told, shown = run(pipeline)
    assert CANARY in told, "the negative control: the cause has it"
    stored, quoted = read_ledger(pipeline)
    assert "violates check constraint" in shown
    assert CANARY in quoted
    assert [text for text in (shown, stored, caplog.text) if CANARY in text] == []
    batch_id = pipeline.query("select max(batch_id) from batchledger.batch where pipeline = %s", pipeline.name)[0][0]
    for arguments, is_shown in (((), False), (("--show-errors",), True)):
        for form in ((), ("--json",)):
            done = batchledger("batch", str(batch_id), *arguments, *form)
            assert (done.returncode, CANARY in done.stdout) == (0, is_shown)
    for may_act in (True, False):
        user = User("ana", may_act=may_act, dags=frozenset({pipeline.name}))
        browser, address = (
            open_browser(let_in(monkeypatch, user), user),
            f"/pipelines/{pipeline.name}/batches/{batch_id}",
        )
        usual, asked = browser.get(address), browser.get(f"{address}?payloads=yes")
        assert (usual.status_code, CANARY in usual.text) == (200, False)
        assert (asked.status_code, CANARY in asked.text) == ((200, True) if may_act else (403, False))
