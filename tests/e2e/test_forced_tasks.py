"""What a person forces in Airflow, with its own buttons: it ends in a sentence, and nothing becomes visible by it."""

from batchledger.local.airflow_api import AirflowApi, Run
from tests.conftest import TestServices
from tests.e2e.runs import PATIENT, Person, read_logs, run_to_the_end, task_states
from tests.support import TestPipeline, Workplace

pytestmark = PATIENT


def find_task(airflow: AirflowApi, pipeline: TestPipeline, run: Run, task_id: str) -> tuple[str | None, int, str]:
    """The state of a task, its number of tries, and its last error."""
    task = next(each for each in airflow.list_tasks(pipeline.name, run.run_id) if each.task_id == task_id)
    return task.state, task.try_number, airflow.read_error(pipeline.name, run.run_id, task)


def test_note_of_a_run_says_rows_and_batch_and_leaves_the_note_of_a_person(
    airflow: AirflowApi, workplace: Workplace, services: TestServices
) -> None:
    pipeline = workplace.create(partitions=1)
    pipeline.send(30, partitions=1)
    (run,) = run_to_the_end(airflow, pipeline)
    batch_id = pipeline.query("select batch_id from batchledger.batch where pipeline = %s", pipeline.name)[0][0]
    person, note = Person(airflow, pipeline.name, run), f"batch {batch_id}: 30 rows published"
    assert person.read_note() == note
    logs = read_logs(services.home.local, pipeline.name, run)
    assert note in logs
    assert f"batch {batch_id} of {pipeline.name} took everything that was readable" in logs
    person.write_note("for the auditors")
    person.clear("report")
    assert person.read_note() == "for the auditors"


def test_forced_audit_ends_publish_once_with_the_batch_and_the_way_on_and_the_note_says_what_was_forced(
    airflow: AirflowApi, workplace: Workplace
) -> None:
    """The audit has blocked the batch. A person marks it as done, runs publish again, then marks that one, too."""
    pipeline = workplace.create()
    pipeline.send_in_transaction([b"{}"], partition=0, commit=True)
    (run,) = run_to_the_end(airflow, pipeline)
    batch_id = pipeline.query("select batch_id from batchledger.batch where pipeline = %s", pipeline.name)[0][0]
    person = Person(airflow, pipeline.name, run)
    assert person.read_note() == (
        f"batch {batch_id} is blocked, and not visible. It waits for a person: batchledger batch {batch_id}"
    )
    person.mark("audit", "success")
    state, tries, error = find_task(airflow, pipeline, run, "publish")
    assert (state, tries) == ("failed", 1)
    assert f"batch {batch_id} of {pipeline.name} is blocked" in error
    assert f"batchledger batch {batch_id}" in error
    person.mark("publish", "success")
    person.clear("report")
    assert task_states(airflow, pipeline, run)["catch_up"] == "skipped"
    assert person.read_note() == (
        f"batch {batch_id} is blocked, and not visible. Its publish task was marked as a success by hand, and that "
        f"publishes nothing. It waits for a person: batchledger batch {batch_id}"
    )
    assert pipeline.count_target_rows() == 0


def test_run_whose_plan_was_only_marked_says_so_and_the_next_run_publishes(
    airflow: AirflowApi, workplace: Workplace
) -> None:
    pipeline = workplace.create()
    (run,) = run_to_the_end(airflow, pipeline)
    assert task_states(airflow, pipeline, run)["plan"] == "skipped"
    person = Person(airflow, pipeline.name, run)
    assert person.read_note() is None
    person.mark("plan", "success")
    person.clear("stage", "report")
    state, tries, error = find_task(airflow, pipeline, run, "stage")
    assert (state, tries) == ("failed", 1)
    assert f"Run {run.run_id} of {pipeline.name} has no batch. This step changes nothing." in error
    assert "Clear the plan task of this run in Airflow with everything downstream." in error
    told = person.read_note()
    assert told is not None
    assert told.startswith("This run has no batch, so nothing became visible. Its plan task was marked as a success")
    pipeline.send(20)
    run_to_the_end(airflow, pipeline)
    pipeline.assert_exact()
