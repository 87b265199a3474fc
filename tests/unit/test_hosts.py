"""Which DAG decides who may do what with a pipeline, and how the page asks for work in it."""

import pytest
from airflow.sdk import DAG, TaskGroup, task

from batchledger.airflow import BatchledgerOperator, BatchledgerTaskGroup, expand_groups
from batchledger.interfaces.page.access import find_host, list_readable
from batchledger.interfaces.page.airflow_state import HostDag, choose_hosts
from batchledger.interfaces.trigger_form import OWN_KEY
from batchledger.model.runs import HOST_TAG, RunPlace, find_place
from tests.pages import AirflowDatabase, Auth, NoTeams, User, stand_in

TAG = f"{HOST_TAG}orders"
ORDERS, NIGHTLY = HostDag("orders", "orders"), HostDag("nightly", "orders", is_own=True)


@pytest.mark.parametrize(
    ("known", "tagged", "hosts"),
    [
        ((), (), (ORDERS,)),
        (("orders",), (), (ORDERS,)),
        ((), ("nightly",), (NIGHTLY,)),
        ((), ("hourly", "nightly"), (HostDag("hourly", "orders", is_own=True), NIGHTLY)),
        (("orders",), ("nightly",), (ORDERS,)),
        (("orders",), ("nightly", "orders"), (HostDag("orders", "orders", is_own=True),)),
    ],
    ids=["no DAG", "file", "own", "two own", "file and own", "own called as the pipeline"],
)
def test_dag_that_is_called_as_the_pipeline_decides_alone_and_without_it_each_dag_with_the_tag(
    known: tuple[str, ...], tagged: tuple[str, ...], hosts: tuple[HostDag, ...]
) -> None:
    assert choose_hosts(["orders"], known, [(TAG, each) for each in tagged]) == {"orders": hosts}


@pytest.mark.parametrize(
    ("own", "known", "readable"),
    [
        ([("nightly", "orders"), ("nightly", "visits"), ("other", "secret")], set(), {"nightly", "orders", "visits"}),
        ([("nightly", "orders"), ("nightly", "visits")], {"orders"}, {"nightly", "visits"}),
    ],
    ids=["own alone", "file too"],
)
def test_pipeline_is_read_by_who_may_read_a_dag_that_hosts_it_and_by_no_tag_if_its_file_has_a_dag(
    monkeypatch: pytest.MonkeyPatch, own: list[tuple[str, str]], known: set[str], readable: set[str]
) -> None:
    """The negative control: a tag opens nothing that the DAG of the file keeps closed."""
    monkeypatch.setattr("batchledger.interfaces.page.access.get_auth_manager", Auth)
    monkeypatch.setattr("batchledger.interfaces.page.access.DagModel", NoTeams)
    stand_in(monkeypatch, AirflowDatabase(own=own, known=known))
    user = User("ana", dags=frozenset({"nightly"}))
    assert set(list_readable(user)) == readable
    found = {each: find_host(user, each) for each in ("orders", "visits", "secret")}
    assert {name for name, host in found.items() if host is not None} == readable - {"nightly"}


def test_user_acts_through_the_first_dag_that_he_may_trigger_and_looks_through_any(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Triggers(Auth):
        def is_authorized_dag(self, *, method: str, details: object, user: User, access_entity: object = None) -> bool:
            return method == "GET" or getattr(details, "id", None) in (user.dags or ())

    monkeypatch.setattr("batchledger.interfaces.page.access.get_auth_manager", Triggers)
    monkeypatch.setattr("batchledger.interfaces.page.access.DagModel", NoTeams)
    stand_in(monkeypatch, AirflowDatabase(own=[("a", "orders"), ("b", "orders"), ("c", "orders")]))
    found = [find_host(User("ana", dags=frozenset(each)), "orders") for each in ({"c", "b"}, set[str]())]
    assert [each.dag_id for each in found if each] == ["b", "a"]


def test_run_in_a_persons_own_dag_is_asked_for_one_pipeline_and_begins_the_names_that_the_ledger_has() -> None:
    fields = {"action": "catch_up"}
    assert ORDERS.write_conf(fields) == fields
    assert NIGHTLY.write_conf(fields) == {OWN_KEY: {"action": "catch_up", "pipeline": "orders"}}
    for host, place in ((ORDERS, RunPlace("orders", "r@1")), (NIGHTLY, RunPlace("nightly", "r@1"))):
        assert find_place("orders", host.name_run("r@1")) == place
    for group, index in (("a.b", None), ("m", 3)):
        assert RunPlace("nightly", "r@1", group, index).name_for("orders").startswith(NIGHTLY.name_run("r@1"))
    # A DAG of another name, and of a longer run, begins another one.
    assert not RunPlace("nightly2", "r@1", "a").name_for("orders").startswith(NIGHTLY.name_run("r@1"))
    assert not RunPlace("nightly", "r@12", "a").name_for("orders").startswith(NIGHTLY.name_run("r@1"))


def test_dag_of_a_person_is_tagged_with_each_pipeline_whose_name_is_known_when_airflow_reads_it() -> None:
    with DAG("nightly", schedule=None, tags=["shop"]) as dag:

        @task
        def list_names() -> list[str]:
            return ["unknown"]

        with TaskGroup("outer"):
            BatchledgerTaskGroup("load", pipeline="orders", until_caught_up=True)
        BatchledgerOperator(task_id="one", pipeline="visits")
        expand_groups("many", pipeline=["first", "second"])
        expand_groups("others", pipeline=list_names())
    assert dag.tags == {"shop", *(HOST_TAG + each for each in ("orders", "visits", "first", "second"))}
    with DAG("orders", schedule=None) as dag:
        BatchledgerTaskGroup("load", pipeline="orders")
    assert dag.tags == {TAG}
