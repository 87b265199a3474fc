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

from batchledger.interfaces.trigger_form import OWN_KEY
from batchledger.model.runs import HOST_TAG

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
        return {OWN_KEY: {**fields, "pipeline": self.pipeline}} if self.is_own else fields


def find_hosts(pipelines: Collection[str]) -> dict[str, tuple[HostDag, ...]]:
    """Return the DAGs that decide who may do what with each pipeline.

    The DAG that is called as the pipeline decides alone, so that no tag of another DAG opens the pipeline to more
    people. Without it, each DAG with the tag does. A pipeline that is in no DAG has the one that its file would have.
    """
    known = select(DagModel.dag_id).where(DagModel.dag_id.in_(pipelines), ~DagModel.is_stale)
    tagged = (
        select(DagTag.name, DagTag.dag_id)
        .join(DagModel, DagModel.dag_id == DagTag.dag_id)
        .where(DagTag.name.in_([HOST_TAG + each for each in pipelines]), ~DagModel.is_stale)
        .order_by(DagTag.dag_id)
    )
    with create_session(scoped=False) as session:
        own = [(tag, dag_id) for tag, dag_id in session.execute(tagged)]
        return choose_hosts(pipelines, {*session.scalars(known)}, own)


def choose_hosts(
    pipelines: Iterable[str], known: Collection[str], tagged: Iterable[tuple[str, str]]
) -> dict[str, tuple[HostDag, ...]]:
    """Return what ``find_hosts`` does, of the ``known`` DAGs and of tags with their DAGs. Pure."""
    own: dict[str, list[str]] = {}
    for tag, dag_id in tagged:
        own.setdefault(tag.removeprefix(HOST_TAG), []).append(dag_id)

    def choose(name: str) -> tuple[HostDag, ...]:
        dag_ids = own.get(name, [])
        if name in known or not dag_ids:
            return (HostDag(name, name, is_own=name in dag_ids),)
        return tuple(HostDag(each, name, is_own=True) for each in dag_ids)

    return {each: choose(each) for each in pipelines}


def list_hosted(dag_ids: Collection[str]) -> list[str]:
    """Return the pipelines that stand in these DAGs by their tags, in the order of their names."""
    # Not "in": an Airflow may have more DAGs than a statement may have values.
    query = select(DagTag.name, DagTag.dag_id).where(DagTag.name.startswith(HOST_TAG, autoescape=True))
    with create_session(scoped=False) as session:
        return sorted({tag.removeprefix(HOST_TAG) for tag, dag_id in session.execute(query) if dag_id in dag_ids})


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


def find_switched_off(pipelines: Collection[str]) -> set[str]:
    """Return the pipelines of which no run starts by itself, because their DAGs are switched off in Airflow."""
    hosts = find_hosts(pipelines)
    dag_ids = {host.dag_id for each in hosts.values() for host in each}
    query = select(DagModel.dag_id).where(DagModel.dag_id.in_(dag_ids), DagModel.is_paused)
    with create_session(scoped=False) as session:
        off = set(session.scalars(query))
    return {name for name, each in hosts.items() if all(host.dag_id in off for host in each)}
