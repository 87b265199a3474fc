"""What Airflow's scheduler shows beside a run, within its own transaction: a text of ours that fits, or nothing."""

from collections.abc import Iterator
from typing import Any

import airflow.models
import pytest
from airflow.models.base import Base
from airflow.models.dagrun import DagRun, DagRunNote
from airflow.models.xcom import XComModel
from sqlalchemy import create_engine
from sqlalchemy.orm import Session

from batchledger.interfaces.airflow.batch_of_run import NOTE
from batchledger.interfaces.airflow.listener import on_dag_run_failed, on_dag_run_success

RUN = "manual__1"


@pytest.fixture
def session() -> Iterator[Session]:
    """A database of Airflow in memory."""
    airflow.models.import_all_models()
    engine = create_engine("sqlite://")
    Base.metadata.create_all(engine)
    with Session(engine) as session:
        yield session
    engine.dispose()


def end_run(session: Session, key: str, said: Any) -> str | None:
    """Return the note of a run whose report task has left ``said`` under ``key``."""
    run = DagRun(dag_id="orders", run_id=RUN, run_type="manual")
    session.add(run)
    session.flush()
    session.add(
        XComModel(
            dag_run_id=run.id, task_id="report", map_index=-1, key=key, dag_id="orders", run_id=RUN,
            value=XComModel.serialize_value(said),
        )
    )  # fmt: skip
    session.flush()
    on_dag_run_success(run, "")
    session.flush()
    return session.scalar(session.query(DagRunNote.content).statement)


def test_run_shows_what_its_report_task_has_said(session: Session) -> None:
    assert end_run(session, NOTE, "batch 1: 10 rows published") == "batch 1: 10 rows published"


@pytest.mark.parametrize("said", ["theirs", "x" * 1_001, {"a": 1}])
def test_report_task_of_another_dag_leaves_no_note(session: Session, said: Any) -> None:
    assert end_run(session, "note", said) is None


@pytest.mark.parametrize(("said", "shown"), [("x" * 1_001, "x" * 1_000), ({"a": 1}, None), (7, None)])
def test_what_does_not_fit_the_column_of_airflow_is_cut_or_left_out(
    session: Session, said: Any, shown: str | None
) -> None:
    assert end_run(session, NOTE, said) == shown


def test_note_of_a_person_stays(session: Session) -> None:
    run = DagRun(dag_id="orders", run_id=RUN, run_type="manual")
    run.dag_run_note = DagRunNote(content="for the auditors", user_id="ana")
    session.add(run)
    session.flush()
    on_dag_run_failed(run, "")
    assert run.note == "for the auditors"
