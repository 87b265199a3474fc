"""Which events Airflow's OpenLineage provider sends of a pipeline's tasks, if it is installed and configured.

The provider sends a START event before a task does its work, and waits up to ``execution_timeout`` for the server. So
tasks send nothing by default, and no batch waits. The task that publishes lets its events through when it is done:
the provider sends them when Airflow has stored how the task has ended. A task that fails sends nothing, because the
provider would send the words of the error, which may quote a value of a record. Imports nothing of the provider,
because DAG files are parsed through this module.
"""

from typing import TYPE_CHECKING

from airflow.sdk.definitions.param import ParamsDict

if TYPE_CHECKING:
    from airflow.sdk import DAG, BaseOperator
    from airflow.sdk.definitions.mappedoperator import MappedOperator

EMISSION_POLICY = "_openlineage_emission_policy"
"""The provider looks for its policy under this param (``OL_EMISSION_POLICY_PARAM``); importing it takes seconds."""
_SENDS_EVENTS = "emit_task_events"


def silence(dag: "DAG") -> "DAG":
    """Let the tasks of a DAG send no events of their own; the scheduler still sends events of its runs.

    The params of the DAG reach each task when it runs. As copies in each task, they made Airflow spend 60 ms of CPU
    instead of 12 on a DAG whenever it reads the files: it checks each against its schema, twice.
    """
    for task in dag.tasks:
        silence_task(task)
    return dag


def silence_task(task: "BaseOperator | MappedOperator") -> None:
    """Let one task send no events of its own."""
    task.params = ParamsDict({EMISSION_POLICY: {_SENDS_EVENTS: False}})


def let_through(task: "BaseOperator") -> None:
    """Let the events of a task through from now on, in this process."""
    task.params[EMISSION_POLICY] = {_SENDS_EVENTS: True}
