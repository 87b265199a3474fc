"""Which DAG decides who may do what with a pipeline, and how the page asks for work in it."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from airflow.models.dag import DagModel, DagTag
from airflow.models.dagbundle import DagBundleModel
from airflow.sdk import DAG, TaskGroup, task
from fastapi import HTTPException
from sqlalchemy import create_engine
from sqlalchemy.orm import Session
from sqlalchemy.pool import StaticPool

from batchledger.airflow import BatchledgerOperator, BatchledgerTaskGroup, expand_groups
from batchledger.interfaces.page import access, airflow_state
from batchledger.interfaces.page.access import find_visitor, list_readable
from batchledger.interfaces.page.airflow_state import HostDag, find_hosts, find_switched_off, list_hosted
from batchledger.interfaces.page.rights import Verb
from batchledger.interfaces.trigger_form import OWN_KEY
from batchledger.model.runs import FILE_TAG, HOST_TAG, RunPlace, find_place
from tests.pages import AirflowDatabase, Auth, NoTeams, User, stand_in

TAG = f"{HOST_TAG}orders"
ORDERS, NIGHTLY = HostDag("orders", "orders"), HostDag("nightly", "orders", is_own=True)


@pytest.fixture
def airflow(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Airflow's tables of DAGs and tags, in memory; returns what adds a DAG."""
    engine = create_engine("sqlite://", poolclass=StaticPool)
    tables = [each.__table__ for each in (DagBundleModel, DagModel, DagTag)]
    DagModel.metadata.create_all(engine, tables=tables)
    monkeypatch.setattr(airflow_state, "create_session", lambda scoped: Session(engine))

    def add(dag_id: str, *tags: str, is_stale: bool = False, is_paused: bool = False) -> None:
        with Session(engine) as session, session.begin():
            session.add(
                DagModel(dag_id=dag_id, bundle_name="dags", fileloc="dags.py", is_stale=is_stale, is_paused=is_paused)
            )
            session.flush()
            session.add_all(DagTag(dag_id=dag_id, name=each) for each in tags)

    yield add
    engine.dispose()


@pytest.mark.parametrize(
    ("dags", "hosts"),
    [
        ([], [ORDERS]),
        ([("orders", FILE_TAG)], [ORDERS]),
        ([("nightly", TAG)], [NIGHTLY]),
        ([("nightly", TAG), ("hourly", TAG, "shop")], [HostDag("hourly", "orders", is_own=True), NIGHTLY]),
        ([("orders", FILE_TAG), ("nightly", TAG)], [ORDERS]),
        ([("orders", "shop"), ("nightly", TAG)], [NIGHTLY]),
        ([("orders", TAG)], [HostDag("orders", "orders", is_own=True)]),
        ([("nightly", f"{HOST_TAG}order_"), ("hourly", f"{HOST_TAG}visits")], [ORDERS]),
    ],
    ids=["no DAG", "file", "own", "two", "file and own", "another of its name", "own of its name", "another pipeline"],
)
def test_dag_of_the_file_decides_alone_and_without_it_each_dag_with_the_tag(
    airflow: Callable[..., None], dags: list[tuple[str, ...]], hosts: list[HostDag]
) -> None:
    for each in dags:
        airflow(*each)
    assert find_hosts(["orders"]) == {"orders": tuple(hosts)}


def test_dag_that_airflow_no_longer_reads_decides_until_one_of_today_does(airflow: Callable[..., None]) -> None:
    """A broken DAG file opens its pipelines to no other people, and locks no person out."""
    airflow("orders", FILE_TAG, is_stale=True)
    airflow("aged", TAG, f"{HOST_TAG}visits", is_stale=True)
    assert find_hosts(["orders", "visits"]) == {
        "orders": (ORDERS,),
        "visits": (HostDag("aged", "visits", is_own=True),),
    }
    airflow("nightly", TAG, f"{HOST_TAG}visits")
    assert find_hosts(["orders", "visits"]) == {
        "orders": (ORDERS,),
        "visits": (HostDag("nightly", "visits", is_own=True),),
    }


def test_pipelines_of_a_dag_and_of_all_are_found_by_their_tags(airflow: Callable[..., None]) -> None:
    airflow("nightly", TAG, "shop", f"{HOST_TAG}visits")
    airflow("hourly", TAG, FILE_TAG, is_paused=True)
    assert (list_hosted("nightly"), list_hosted("hourly"), list_hosted("none")) == (
        ["orders", "visits"],
        ["orders"],
        [],
    )
    assert list_hosted() == ["orders", "visits"]
    assert find_switched_off(["nightly", "hourly"]) == {"hourly"}


@pytest.mark.parametrize(
    ("own", "known", "readable"),
    [
        ([("nightly", "orders"), ("nightly", "visits"), ("other", "secret")], set(), {"nightly", "orders", "visits"}),
        ([("nightly", "orders"), ("nightly", "visits")], {"orders"}, {"nightly", "visits"}),
    ],
    ids=["own alone", "file too"],
)
def test_pipeline_is_read_by_who_may_read_a_dag_that_hosts_it_and_by_no_tag_if_its_file_has_a_dag(
    rights: Callable[[AirflowDatabase], None], own: list[tuple[str, str]], known: set[str], readable: set[str]
) -> None:
    """The negative control: a tag opens nothing that the DAG of the file keeps closed."""
    rights(AirflowDatabase(own=own, known=known))
    user = User("ana", dags=frozenset({"nightly"}))
    assert set(list_readable(user)) == readable
    found = {each for each in ("orders", "visits", "secret") if find_visitor(user, each).verbs_by_host}
    assert found == readable - {"nightly"}


def test_reader_of_an_old_dag_of_that_name_does_not_see_a_pipeline_that_has_moved(
    rights: Callable[[AirflowDatabase], None],
) -> None:
    rights(AirflowDatabase(own=[("nightly", "orders")]))
    assert set(list_readable(User("ana", dags=frozenset({"orders"})))) == set()


@pytest.fixture
def rights(monkeypatch: pytest.MonkeyPatch) -> Callable[[AirflowDatabase], None]:
    """Airflow's rights, as each user has them."""
    monkeypatch.setattr(access, "get_auth_manager", Auth)
    monkeypatch.setattr(access, "DagModel", NoTeams)
    return lambda database: stand_in(monkeypatch, database)


def test_user_acts_in_the_first_dag_that_gives_all_rights_and_looks_through_any(
    rights: Callable[[AirflowDatabase], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Triggers(Auth):
        """All DAGs may be read, one be triggered, and another one, too, be deleted."""

        def is_authorized_dag(self, *, method: str, details: Any, user: User, access_entity: Any = None) -> bool:
            return method == "GET" or details.id == "c" or (method == "POST" and details.id == "b")

    rights(AirflowDatabase(own=[("a", "orders"), ("b", "orders"), ("c", "orders")]))
    monkeypatch.setattr(access, "get_auth_manager", Triggers)
    monkeypatch.setenv("AIRFLOW__BATCHLEDGER__TO_DECIDE", "DELETE dag")
    visitor = find_visitor(User("ana"), "orders")
    asked = ([Verb.LOOK], [Verb.OPERATE], [Verb.DECIDE], [Verb.DECIDE, Verb.DESTROY])
    assert [visitor.require(*each).dag_id for each in asked] == ["b", "b", "c", "c"]
    assert [each.dag_id for each in visitor.verbs_by_host] == ["b", "c", "a"]
    with pytest.raises(HTTPException) as refused:
        find_visitor(User("ana", may_read=False), "none_of_hers").require(Verb.DESTROY)
    assert refused.value.status_code == 403


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
