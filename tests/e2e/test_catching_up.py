"""A backlog drains by itself, one run at a time, however many runs were asked for."""

from collections import Counter

from batchledger.airflow_api import AirflowApi
from tests.e2e.runs import PATIENT, run_to_the_end, switch_on, task_states
from tests.support import Workplace

pytestmark = PATIENT


def test_runs_that_are_triggered_together_take_turns_and_those_behind_the_backlog_are_skipped(
    airflow: AirflowApi, workplace: Workplace
) -> None:
    """Three triggers at once for a backlog of two batches, of which the first starts one run more."""
    pipeline = workplace.create(limits={"max_records": 200})
    pipeline.send(400)
    switch_on(airflow, pipeline)
    for _ in range(2):
        airflow.trigger(pipeline.name)
    runs = run_to_the_end(airflow, pipeline)
    published = Counter(task_states(airflow, pipeline, run)["publish"] for run in runs)
    assert published == {"success": 2, "skipped": 2}
    attempts = pipeline.query(
        "select outcome, a.opened_at > lag(a.ended_at) over (order by a.opened_at) from batchledger.attempt a "
        "join batchledger.batch b using (batch_id) where b.pipeline = %s order by a.opened_at",
        pipeline.name,
    )
    assert attempts == [("published", None), ("published", True)]
    pipeline.assert_exact()
