"""A backlog drains by itself, one run at a time, however many runs were asked for."""

from collections import Counter

from batchledger.airflow_api import AirflowApi
from tests.e2e.test_airflow import DEADLINE_SECONDS, run_to_the_end, task_states
from tests.support import Workplace


def test_runs_that_are_triggered_together_take_turns_and_those_behind_the_backlog_are_skipped(
    airflow: AirflowApi, workplace: Workplace
) -> None:
    """Five triggers at once for a backlog of three batches, of which the first two start a run more each."""
    pipeline = workplace.create(limits={"max_records": 200})
    pipeline.send(500)
    airflow.wait_until_known(pipeline.name, DEADLINE_SECONDS)
    for _ in range(4):
        airflow.trigger(pipeline.name)
    runs = run_to_the_end(airflow, pipeline)
    published = Counter(task_states(airflow, pipeline, run)["publish"] for run in runs)
    assert published == {"success": 3, "skipped": 4}
    attempts = pipeline.query(
        "select outcome, a.opened_at > lag(a.ended_at) over (order by a.opened_at) from batchledger.attempt a "
        "join batchledger.batch b using (batch_id) where b.pipeline = %s order by a.opened_at",
        pipeline.name,
    )
    assert attempts == [("published", None), ("published", True), ("published", True)]
    pipeline.assert_exact()
