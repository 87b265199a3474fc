"""The stage step in a process of spark-submit."""

import os
import re
from functools import partial
from pathlib import Path

from batchledger.lifecycle.at_work import begin_work
from batchledger.lifecycle.following import Follow
from batchledger.lifecycle.platform import Platform, look_at_reading
from batchledger.model.batch import Attempt, Batch
from batchledger.model.errors import BatchledgerError, SetupError, StageRefusedError, StagingError
from batchledger.model.progress import Reading
from batchledger.model.refusals import taken_over
from batchledger.source.spark import LOG_SETTINGS

_LOG4J = "LOG4J_CONFIGURATION_FILE"
_STAGE_JOB = Path(__file__).parents[2] / "jobs" / "stage_batch.py"


def submit_stage(
    platform: Platform,
    batch_id: int,
    run: str,
    *,
    pipeline: str,
    connection_id: str,
    deploy_mode: str | None,
    follow: Follow,
) -> Batch:
    """Run the stage job by spark-submit, as Airflow's Spark provider does. The job runs the same step.

    This process, not the job, counts as at work on the batch: if it is killed, another run takes the batch over.
    """
    from airflow.exceptions import AirflowException
    from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook

    arguments = ["--pipeline", pipeline, "--batch", str(batch_id), "--run", run, "--held"]
    name = f"batchledger-{pipeline}-{batch_id}"
    hook = SparkSubmitHook(conn_id=connection_id, name=name, application_args=arguments)
    batch = platform.ledger.load_batch(batch_id)
    look = partial(_look_at_job, platform, batch, run)
    try:
        with begin_work(platform, batch_id, run), follow(Attempt(batch, batch.attempt + 1, run), look):
            hook.submit(str(_STAGE_JOB), env=_choose_environment(deploy_mode))
    except FileNotFoundError as error:
        raise SetupError(
            f"{error.filename} is not on the PATH of this process. {batch.label} was not staged.",
            advice="Put the bin folder of Spark, or of the environment that has pyspark, on the PATH.",
            batch_id=batch_id,
        ) from error
    except AirflowException as error:
        raise _explain_exit(platform.ledger.load_batch(batch_id), run, str(error)) from error
    return platform.ledger.load_batch(batch_id)


def _choose_environment(deploy_mode: str | None) -> dict[str, str]:
    """Return the environment of spark-submit: with our settings of Log4j if the driver runs on this machine.

    The driver's log then becomes the output of this task. A driver elsewhere may not have the file, and the provider
    reads lines of spark-submit that these settings leave out. Its ``env_vars`` would be for drivers elsewhere, too.
    """
    settings = {} if deploy_mode == "cluster" else {_LOG4J: str(LOG_SETTINGS)}
    return settings | os.environ


def _look_at_job(platform: Platform, before: Batch, run: str) -> Reading:
    """Return what the job has read so far: nothing until it has opened a new attempt."""
    batch = platform.ledger.load_batch(before.batch_id)
    if batch.attempt == before.attempt or batch.attempt_run != run:
        return Reading(0)
    return look_at_reading(platform, Attempt(batch, batch.attempt, run))


def _explain_exit(batch: Batch, run: str, output: str) -> BatchledgerError:
    """Say what the exit code of the stage job means. Its own message is in the log."""
    found = re.search(r"Error code is: (\d+)", output)
    code = int(found[1]) if found else 1
    if batch.attempt_run not in (None, run):
        return taken_over(batch, run)
    kind = StagingError if code not in (2, 3) else StageRefusedError
    return kind(
        f"The stage job of {batch.label} ended with exit code {code}. Nothing is visible.",
        advice="Read the message of the job itself in the log above. Then run it again: "
        f"batchledger run {batch.pipeline} --batch {batch.batch_id}",
        batch_id=batch.batch_id,
    )
