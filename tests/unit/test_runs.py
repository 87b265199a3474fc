"""The names by which the ledger knows who works on a batch lead back to the run in Airflow, and never meet."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchledger.model.runs import RunPlace, find_place

IDS = st.text("ab-._0", min_size=1, max_size=6)
PLACES = st.builds(
    RunPlace,
    dag_id=IDS,
    run_id=st.text(min_size=1),
    group=st.text("ab._-", max_size=6),
    map_index=st.none() | st.integers(0, 99),
)


def test_run_of_the_dag_of_a_pipeline_file_has_its_own_id_as_name() -> None:
    assert RunPlace("orders", "scheduled__1").name_for("orders") == "scheduled__1"
    assert find_place("orders", "scheduled__1") == RunPlace("orders", "scheduled__1")


@pytest.mark.parametrize(
    ("place", "name"),
    [
        (RunPlace("nightly", "manual__1", "load"), "manual__1@nightly/load"),
        (RunPlace("nightly", "manual__1"), "manual__1@nightly/"),
        (RunPlace("nightly", "manual__1", "outer.load", 3), "manual__1@nightly/outer.load[3]"),
        (RunPlace("orders", "manual__1", "load"), "manual__1@orders/load"),
    ],
)
def test_run_of_another_dag_names_it_and_the_group(place: RunPlace, name: str) -> None:
    assert place.name_for("orders") == name
    assert find_place("orders", name) == place


@given(place=PLACES)
def test_each_name_leads_back_to_its_place(place: RunPlace) -> None:
    name = place.name_for("orders")
    if name != place.run_id and not name.startswith("cli__"):
        assert find_place("orders", name) == place


@given(places=st.sets(PLACES, min_size=2, max_size=2))
def test_two_places_that_name_themselves_have_two_names(places: set[RunPlace]) -> None:
    """A run id that looks like another place would need a person who wrote it so; it has none of the others' names."""
    names = {each.name_for("none") for each in places}
    assert len(names) == 2


def test_run_of_the_command_line_is_nowhere_in_airflow() -> None:
    assert find_place("orders", "cli__2026-11-21T12:00:00+00:00__ana@host/x") is None
