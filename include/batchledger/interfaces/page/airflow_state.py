"""What Airflow's own database says about the DAGs of pipelines. Runs in the API server; reads only.

The DAG of a pipeline file is called as the pipeline. A person's own DAG has a tag for each pipeline that stands in it.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from airflow.models.dag import DagModel, DagTag
from airflow.models.dagrun import DagRun
from airflow.utils.session import create_session
from airflow.utils.state import DagRunState
from sqlalchemy import select

from batchledger.interfaces.trigger_form import OF_PIPELINE, OWN_KEY
from batchledger.model.runs import FILE_TAG, HOST_TAG

_ACTIVE = (DagRunState.QUEUED, DagRunState.RUNNING)


@dataclass(frozen=True, slots=True)
class HostDag:
    """A DAG that a pipeline stands in. One that ``is_own`` is a person's, with other tasks and another form."""

    dag_id: str
    pipeline: str
    is_own: bool = False

    def name_run(self, run_id: str) -> str:
        """Return what the names begin with that the ledger has for the work of a run on the pipeline."""
        return f"{run_id}@{self.dag_id}/" if self.is_own else run_id

    def write_conf(self, fields: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the configuration of a run that is asked for this, and for no other pipeline of the DAG."""
        return {OWN_KEY: {**fields, OF_PIPELINE: self.pipeline}} if self.is_own else fields


def find_hosts(pipelines: Collection[str]) -> dict[str, tuple[HostDag, ...]]:
    """Return the DAGs that decide who may do what with each pipeline.

    The DAG of its file decides alone, so that no tag of another DAG opens the pipeline to more people. Without it, each
    DAG with the tag of the pipeline does. A pipeline that is in no DAG has the one that its file would have.

    A DAG that Airflow no longer reads decides as before: the one of a pipeline file until it is deleted in Airflow, one
    with the tag until another DAG has it.
    """
    wanted = [FILE_TAG, *(HOST_TAG + each for each in pipelines)]
    query = (
        select(DagTag.name, DagTag.dag_id, DagModel.is_stale)
        .join(DagModel, DagModel.dag_id == DagTag.dag_id)
        .where(DagTag.name.in_(wanted), (DagTag.name != FILE_TAG) | DagTag.dag_id.in_(pipelines))
        .order_by(DagTag.dag_id)
    )
    with create_session(scoped=False) as session:
        found = session.execute(query).all()
    tagged = [(tag, dag_id) for tag, dag_id, _ in found]
    return choose_hosts(pipelines, tagged, {dag_id for _, dag_id, is_stale in found if is_stale})


def choose_hosts(
    pipelines: Iterable[str], tagged: Iterable[tuple[str, str]], stale: Collection[str] = ()
) -> dict[str, tuple[HostDag, ...]]:
    """Return what ``find_hosts`` does, of tags with their DAGs and of the DAGs that Airflow no longer reads. Pure."""
    own: dict[str, list[str]] = {}
    for tag, dag_id in tagged:
        own.setdefault(tag, []).append(dag_id)

    def choose(name: str) -> tuple[HostDag, ...]:
        dag_ids = own.get(HOST_TAG + name, [])
        if (name in own.get(FILE_TAG, []) and name not in dag_ids) or not dag_ids:
            return (HostDag(name, name),)
        fresh = [each for each in dag_ids if each not in stale]
        return tuple(HostDag(each, name, is_own=True) for each in fresh or dag_ids)

    return {each: choose(each) for each in pipelines}


def list_hosted(dag_id: str | None = None) -> list[str]:
    """Return the pipelines that stand in a person's own DAG by its tags, or in any, in the order of their names."""
    query = select(DagTag.name).where(DagTag.name.startswith(HOST_TAG, autoescape=True)).distinct()
    with create_session(scoped=False) as session:
        found = session.scalars(query if dag_id is None else query.where(DagTag.dag_id == dag_id))
        return sorted(each.removeprefix(HOST_TAG) for each in found)


def find_active_runs(dag_ids: Collection[str]) -> set[tuple[str, str]]:
    """Return the DAG and the id of each run that waits or runs."""
    query = select(DagRun.dag_id, DagRun.run_id).where(DagRun.dag_id.in_(dag_ids), DagRun.state.in_(_ACTIVE))
    with create_session(scoped=False) as session:
        return {(dag_id, run_id) for dag_id, run_id in session.execute(query)}


def find_run_state(dag_id: str, run_id: str) -> str | None:
    """Return the state of a run in Airflow's word; None when it knows none of that id."""
    query = select(DagRun.state).where(DagRun.dag_id == dag_id, DagRun.run_id == run_id)
    with create_session(scoped=False) as session:
        state = session.scalar(query)
    return None if state is None else str(state)


def find_switched_off(dag_ids: Collection[str]) -> set[str]:
    """Return the DAGs that start no run by themselves, because they are switched off in Airflow."""
    query = select(DagModel.dag_id).where(DagModel.dag_id.in_(dag_ids), DagModel.is_paused)
    with create_session(scoped=False) as session:
        return set(session.scalars(query))
