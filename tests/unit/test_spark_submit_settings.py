"""The command and the environment of spark-submit: which of them has our settings of Log4j.

The hook is Airflow's own. In place of a process there is a note of what would have been started.
"""

import json
import subprocess
from collections.abc import Mapping, Sequence

import pytest

from batchledger import wiring
from batchledger.config.pipeline_file import PipelineConfig
from batchledger.lifecycle import plans
from batchledger.model.errors import SetupError
from batchledger.source.spark import LOG_SETTINGS
from tests.fakes.world import ORDERS_0, PIPELINE, World

VARIABLE = "LOG4J_CONFIGURATION_FILE"
CONFIG = PipelineConfig.model_validate(
    {
        "name": PIPELINE,
        "spark": "spark_submitted",
        "source": {"topics": ["orders"], "schema": "message_id string"},
        "sink": {"table": "orders"},
    }
)


@pytest.fixture(autouse=True)
def no_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)


def submit(monkeypatch: pytest.MonkeyPatch, host: str, deploy_mode: str | None) -> tuple[str, Mapping[str, str]]:
    """Return command and environment of the process that the stage step starts."""
    started: list[tuple[str, Mapping[str, str]]] = []

    def note(command: Sequence[str], *, env: Mapping[str, str], **_: object) -> None:
        started.append((" ".join(command), env))
        raise FileNotFoundError(2, "no process", command[0])

    extra = {"deploy-mode": deploy_mode} if deploy_mode else {}
    connection = {"conn_type": "spark", "host": host, "extra": extra}
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_SUBMITTED", json.dumps(connection))
    monkeypatch.setattr(subprocess, "Popen", note)
    world = World()
    world.broker.create_topic("orders", 1)
    world.produce(ORDERS_0, 1)
    platform = world.process()
    batch = plans.plan(platform, "run")
    assert batch is not None
    with pytest.raises(SetupError, match="is not on the PATH"):
        wiring.choose_stage_step(CONFIG)(platform, batch.batch_id, "run")
    ((command, environment),) = started
    return command, environment


@pytest.mark.parametrize(
    ("host", "deploy_mode"),
    [("local[2]", None), ("yarn", None), ("yarn", "client"), ("spark://master:7077", "client")],
)
def test_driver_on_this_machine_logs_by_our_settings_and_no_other_process_hears_of_them(
    monkeypatch: pytest.MonkeyPatch, host: str, deploy_mode: str | None
) -> None:
    monkeypatch.setenv("OF_THE_WORKER", "1")
    command, environment = submit(monkeypatch, host, deploy_mode)
    assert environment[VARIABLE] == str(LOG_SETTINGS)
    assert environment["OF_THE_WORKER"] == "1"
    assert VARIABLE not in command


@pytest.mark.parametrize("host", ["yarn", "spark://master:7077"])
def test_driver_on_a_cluster_is_not_sent_to_a_file_of_this_machine(monkeypatch: pytest.MonkeyPatch, host: str) -> None:
    """Without its file Log4j has no settings at all, and the driver's own in ``SPARK_CONF_DIR`` would not count."""
    command, environment = submit(monkeypatch, host, "cluster")
    assert VARIABLE not in environment
    assert VARIABLE not in command
    assert "--deploy-mode cluster" in command


@pytest.mark.parametrize("deploy_mode", ["client", "cluster"])
def test_settings_that_the_worker_names_come_first(monkeypatch: pytest.MonkeyPatch, deploy_mode: str) -> None:
    monkeypatch.setenv(VARIABLE, "/etc/spark/log4j2.properties")
    _, environment = submit(monkeypatch, "yarn", deploy_mode)
    assert environment[VARIABLE] == "/etc/spark/log4j2.properties"
