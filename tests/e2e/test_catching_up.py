"""A backlog drains by itself, one run at a time, however many runs were asked for."""

from collections import Counter

from batchledger.lifecycle import plans
from batchledger.lifecycle.at_work import begin_work
from batchledger.local.airflow_api import AirflowApi
from tests.e2e.runs import PATIENT, plan_of, run_to_the_end, switch_on, task_states, trigger
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


def test_airflow_run_beside_a_living_command_line_is_skipped_and_the_next_one_takes_what_that_left(
    airflow: AirflowApi, workplace: Workplace
) -> None:
    pipeline = workplace.create()
    pipeline.send(20)
    switch_on(airflow, pipeline)
    platform = pipeline.platform()
    batch = plans.plan(platform, "cli__1")
    assert batch is not None
    with begin_work(platform, batch.batch_id, "cli__1"):
        beside = trigger(airflow, pipeline)
        tasks = task_states(airflow, pipeline, beside)
    assert Counter(tasks.values()) == {"skipped": len(tasks) - 1, "success": 1}, tasks
    assert (tasks["plan"], tasks["report"]) == ("skipped", "success")
    assert plan_of(airflow, pipeline, beside)[1] == 1, "it was not tried again"
    # As one that has failed, which leaves the batch to everybody.
    pipeline.query("delete from batchledger.presence where batch_id = %s returning 1", batch.batch_id)
    after = trigger(airflow, pipeline)
    assert task_states(airflow, pipeline, after)["publish"] == "success"
    assert pipeline.query("select run from batchledger.attempt where batch_id = %s", batch.batch_id) == [
        (after.run_id,)
    ]
    pipeline.assert_exact()
