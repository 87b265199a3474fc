"""The stage job by spark-submit: chosen by the type of the Spark connection, the same step, the same outcome."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest
from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook

from batchledger.lifecycle import run_batch
from batchledger.lifecycle.following import Look
from batchledger.model.batch import Attempt
from batchledger.model.errors import ConfigurationError, SetupError, StageRefusedError
from batchledger.model.progress import Reading
from batchledger.wiring import choose_stage_step
from tests.conftest import ROOT, TestServices
from tests.support import Workplace, find_secret


@pytest.fixture
def output(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The lines that spark-submit prints, which Airflow's provider writes to the log of the task."""
    lines: list[str] = []
    read_log = SparkSubmitHook._process_spark_submit_log

    def keep(hook: SparkSubmitHook, log: Iterator[str]) -> None:
        lines.extend(log)
        read_log(hook, iter(lines))

    monkeypatch.setattr(SparkSubmitHook, "_process_spark_submit_log", keep)
    return lines


@pytest.mark.parametrize("into", ["table", "topic", "lake"])
def test_batch_staged_by_spark_submit_is_exact_and_its_events_hold_no_password(
    workplace: Workplace, services: TestServices, spark_local: str, tmp_path: Path, into: str
) -> None:
    """Spark's page shows what its event log has."""
    with (tmp_path / "spark-defaults.conf").open("a") as settings:
        settings.write(f"spark.eventLog.enabled true\nspark.eventLog.dir {tmp_path.as_uri()}/events\n")
        settings.write("spark.eventLog.compress false\nspark.eventLog.rolling.enabled false\n")
    (tmp_path / "events").mkdir()
    schema = "message_id string, number int, amount double, moment timestamp"
    pipeline = workplace.create(into=into, spark=spark_local, source={"schema": schema})
    pipeline.send(100)
    pipeline.send_raw([(0, b"poison")])
    pipeline.send_raw([(1, b'{"message_id": "zoneless", "moment": "2026-07-01T10:00:00"}')])
    pipeline.sent.append("zoneless")
    seen: list[Reading] = []

    @contextmanager
    def follow(attempt: Attempt, look: Look) -> Iterator[None]:
        seen.append(look())
        yield
        seen.append(look())

    stage = choose_stage_step(pipeline.config, follow)
    batch = run_batch.run_once(pipeline.platform(), "submitted", stage_step=stage)
    assert batch is not None
    assert seen == [Reading(0), Reading(102)]
    assert batch.attempt_run == "submitted"
    pipeline.assert_exact()
    (events,) = (file.read_bytes() for file in (tmp_path / "events").iterdir())
    for secret in (services.credentials.database_password, services.credentials.kafka_password):
        assert find_secret(secret, events) == []
    assert b"MapInArrow ReadAndWriteTask" in events, "the plan is there, with the task that knows the password"
    if into == "table":
        moments = pipeline.query("select (moment at time zone 'UTC')::text from {target} where moment is not null")
        assert moments == [("2026-07-01 10:00:00",)]
    elif into == "topic":
        (text,) = (each["moment"] for each in pipeline.read_output() if each["moment"])
        assert text == "2026-07-01T10:00:00+00:00"
    else:
        (moment,) = (each["moment"] for each in pipeline.read_output() if each["moment"])
        assert moment == datetime(2026, 7, 1, 10, tzinfo=UTC)


def test_failing_stage_job_fails_the_step_and_publishes_nothing(workplace: Workplace, spark_local: str) -> None:
    pipeline = workplace.create(spark=spark_local, transform="tests.transforms:no_such_function")
    pipeline.send(10)
    stage = choose_stage_step(pipeline.config)
    with pytest.raises(StageRefusedError, match="ended with exit code 2"):
        run_batch.run_once(pipeline.platform(), "submitted", stage_step=stage)
    assert pipeline.count_target_rows() == 0


def test_value_that_an_expression_quotes_is_not_in_the_output_of_the_task(
    workplace: Workplace, spark_local: str, output: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is the log of Spark's driver, and all that the job prints."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT), prepend=os.pathsep)
    pipeline = workplace.create(partitions=1, spark=spark_local, transform="tests.transforms:as_day")
    pipeline.send_raw([(0, b'{"message_id": "canary-4111-1111", "number": 1}')])
    with pytest.raises(StageRefusedError, match="ended with exit code 3"):
        run_batch.run_once(pipeline.platform(), "submitted", stage_step=choose_stage_step(pipeline.config))
    ((quoted,),) = pipeline.query(
        "select quoted from batchledger.attempt join batchledger.batch using (batch_id) where pipeline = %s",
        pipeline.name,
    )
    assert "canary" in quoted, "the negative control: the error has it"
    log = "\n".join(output)
    assert "SparkDateTimeException [CANNOT_PARSE_TIMESTAMP]" in log
    assert "canary" not in log


@pytest.mark.parametrize("daemon", ["pyspark.daemon", "batchledger.jobs.python_workers"])
def test_cluster_without_librdkafka_is_refused_with_the_name_of_the_package(
    daemon: str,
    workplace: Workplace,
    spark_local: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    output: list[str],
) -> None:
    """The workers' Python is another one than the driver's: it does not find the package."""
    monkeypatch.setenv("PYSPARK_DRIVER_PYTHON", sys.executable)
    (tmp_path / "confluent_kafka.py").write_text("raise ModuleNotFoundError(\"No module named 'confluent_kafka'\")\n")
    workers = tmp_path / "python"
    workers.write_text(f'#!/bin/sh\nPYTHONPATH={tmp_path}:$PYTHONPATH exec {sys.executable} "$@"\n')
    workers.chmod(0o700)
    monkeypatch.setenv("PYSPARK_PYTHON", str(workers))
    with (tmp_path / "spark-defaults.conf").open("a") as settings:
        settings.write(f"spark.python.daemon.module {daemon}\n")
    pipeline = workplace.create(spark=spark_local)
    pipeline.send(10)
    with pytest.raises(StageRefusedError, match="ended with exit code 2"):
        run_batch.run_once(pipeline.platform(), "submitted", stage_step=choose_stage_step(pipeline.config))
    log = "\n".join(output)
    assert "lacks a package. Nothing is visible." in log
    assert "No module named 'confluent_kafka'" in log
    assert pipeline.list_staging() == []


def test_missing_spark_submit_is_one_clear_error(
    workplace: Workplace, spark_local: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = workplace.create(spark=spark_local)
    pipeline.send(10)
    stage = choose_stage_step(pipeline.config)
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(SetupError, match="spark-submit is not on the PATH"):
        run_batch.run_once(pipeline.platform(), "submitted", stage_step=stage)


def test_connection_of_another_type_is_refused(workplace: Workplace) -> None:
    pipeline = workplace.create(spark="warehouse")
    with pytest.raises(ConfigurationError, match="has type 'postgres'") as refused:
        choose_stage_step(pipeline.config)
    assert refused.value.subject == "warehouse"
