"""Who works on a batch, as the ledger names it: a run of Airflow with its place there, or the command line. Pure.

The DAG of a pipeline file is called as its pipeline, so its runs need no more than their own id. In another DAG the
name also says where the work stands, ``scheduled__2026-11-29@nightly/load``: two groups of one run are two workers.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass

COMMAND_LINE_RUN = "cli__"
FILE_TAG = "batchledger"
"""A tag of each DAG that is made of a pipeline file."""
HOST_TAG = "batchledger:"
"""With the name of a pipeline behind it, the tag of a person's own DAG that the pipeline stands in."""
_PLACED = re.compile(r"(.+)@([\w.-]+)/([\w.-]*)(?:\[(\d+)\])?", re.DOTALL)


@dataclass(frozen=True, slots=True)
class RunPlace:
    """Where in Airflow a run works on a pipeline.

    ``group`` is the task group, or the task that takes all steps; empty if the steps stand in the DAG itself.
    ``map_index`` is None unless the group or the task is mapped.
    """

    dag_id: str
    run_id: str
    group: str = ""
    map_index: int | None = None

    def task_id(self, step: str) -> str:
        """Return the id of the task that does a step there."""
        return f"{self.group}.{step}" if self.group else step

    def name_for(self, pipeline: str) -> str:
        """Return the name by which the ledger of a pipeline knows it."""
        if (self.dag_id, self.group, self.map_index) == (pipeline, "", None):
            return self.run_id
        return f"{self.run_id}@{self.dag_id}/{self.group}" + ("" if self.map_index is None else f"[{self.map_index}]")


def write_host_tags(dag_id: str, group: str, pipelines: Iterable[str]) -> set[str]:
    """Return the tags by which the page finds a DAG in whose group these pipelines stand.

    The DAG of a pipeline file is found by its name, and one without a group has no other pipeline.
    """
    return {HOST_TAG + each for each in pipelines if (dag_id, group) != (each, "")}


def find_place(pipeline: str, run: str) -> RunPlace | None:
    """Return where the run of a pipeline is in Airflow; None for a run of the command line."""
    if run.startswith(COMMAND_LINE_RUN):
        return None
    found = _PLACED.fullmatch(run)
    if found is None:
        return RunPlace(pipeline, run)
    run_id, dag_id, group, index = found.groups()
    return RunPlace(dag_id, run_id, group, None if index is None else int(index))
