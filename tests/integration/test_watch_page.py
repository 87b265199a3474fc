"""The page of a watch and its line in the list, on real services; Airflow is stood in for."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from batchledger.config.pipeline_files import watch_files
from batchledger.interfaces.cli.display.watches import describe_watches
from batchledger.interfaces.data_docs.folder import DOCS_VARIABLE
from batchledger.interfaces.data_docs.site import build_all_docs
from batchledger.interfaces.page import lookout
from batchledger.interfaces.surveys import survey_watches
from tests.conftest import Kafka, open_workplace
from tests.pages import ANA, Desk, User, open_desk, words
from tests.support import Workplace
from tests.watched import WatchedTopic, open_shop, write_watch_file

OWNER, OTHER = User("owner", dags=frozenset({"nightly"})), User("other", dags=frozenset({"hourly"}))


@pytest.fixture
def place(kafka: Kafka, warehouse_dsn: str) -> Iterator[Workplace]:
    """A folder of files; none is there after the test."""
    with open_workplace(kafka.options, warehouse_dsn) as opened:
        yield opened


@pytest.fixture
def shop(kafka: Kafka, warehouse_dsn: str, place: Workplace) -> WatchedTopic:
    """A watch of a table with the rows of ten records in each of two partitions."""
    made = open_shop(kafka.options, warehouse_dsn, partitions=2)
    write_watch_file(place.folder, made)
    return made


@pytest.fixture
def desk(monkeypatch: pytest.MonkeyPatch) -> Desk:
    """The pages, which look again each time; two of the people may see one DAG each."""
    monkeypatch.setattr(lookout, "FRESH_SECONDS", 0.0)
    return open_desk(monkeypatch, ANA, OWNER, OTHER)


def page_of(desk: Desk, shop: WatchedTopic, query: str = "", user: User = ANA) -> str:
    answer = desk.get(f"/{shop.name}{query}", user, "/watches")
    assert answer.status_code == 200, words(answer)
    return words(answer)


def line_of(desk: Desk, shop: WatchedTopic) -> str:
    """The line of the watch in the list, for a user who may see its DAG alone."""
    desk.airflow.own[:] = [("nightly", shop.name)]
    shown = desk.get("", OWNER)
    return words(shown).partition("Rows by hour")[2].partition("Rows today")[0]


def test_list_says_how_a_watch_stands_and_when_it_was_looked_at(shop: WatchedTopic, desk: Desk) -> None:
    assert f"{shop.name} watch never looked" in line_of(desk, shop)
    shop.look()
    desk.pages.state.lookout.overview.expire()
    told = line_of(desk, shop)
    assert f"{shop.name} watch 20 offsets proved proved looked" in told
    shop.delete([3, 4])
    shop.look()
    desk.pages.state.lookout.overview.expire()
    assert f"{shop.name} watch deleted 2 wrong looked" in line_of(desk, shop)
    assert "1 watch" in words(desk.get("?state=wrong", OWNER))
    assert "0 of 1 watch" in words(desk.get("?state=proved", OWNER))


def test_page_names_each_difference_with_its_offsets_and_the_commands(shop: WatchedTopic, desk: Desk) -> None:
    told = page_of(desk, shop)
    assert "No look was stored yet." in told
    assert f"batchledger watch {shop.name}" in told
    shop.produce_in_transaction(3, is_committed=False)
    shop.delete([3, 7, 8], partition=1)
    shop.insert([0])
    shop.look()
    told = page_of(desk, shop)
    assert (
        f"missing Kafka has records there, read just now or earlier wrong 3 {shop.name}[1] 3..4, {shop.name}[1] 7..9"
        in told
    )
    assert "The table is wrong: missing 3, twice 1." in told
    assert f"twice more than one row has this offset wrong 1 {shop.name}[0] 0" in told
    assert "aborted 3, markers 1" in told
    assert f"batchledger watch {shop.name} --missing --records" in told
    assert f"Topics {shop.name} (kafka_default) Table {shop.name} (warehouse)" in told
    bars = desk.get(f"/{shop.name}", below="/watches").text
    assert f"{shop.name}[1] 0..10: wrong 3, proved 7" in bars
    # Without the missing rows nothing offers to show records.
    shop.insert([3, 7, 8], partition=1)
    shop.look()
    told = page_of(desk, shop)
    assert "--missing" not in told
    assert "The table is wrong: twice 1." in told


def test_user_who_may_not_read_the_dag_of_a_watch_sees_nothing_of_it(shop: WatchedTopic, desk: Desk) -> None:
    shop.look()
    desk.airflow.own.append(("nightly", shop.name))
    assert f"row-{shop.name}" in desk.get("", OWNER).text
    assert page_of(desk, shop, user=OWNER)
    assert shop.name not in desk.get("", OTHER).text
    for below in ("/watches", "/pipelines", "/docs"):
        refused = desk.get(f"/{shop.name}", OTHER, below)
        assert (refused.status_code, "proved" in refused.text) == (403, False)
    # Its own DAG, once there is one, decides alone.
    desk.airflow.known.add(shop.name)
    assert desk.get(f"/{shop.name}", OWNER, "/watches").status_code == 403


def test_tabs_of_a_dag_and_its_run_lead_to_the_watch(shop: WatchedTopic, desk: Desk, place: Workplace) -> None:
    here = f"/watches/{shop.name}"
    for address in (f"/{shop.name}", f"/{shop.name}/runs/manual__1"):
        assert desk.get(address).headers["location"] == here
    desk.airflow.own.append(("nightly", shop.name))
    for address in ("/nightly", "/nightly/runs/manual__1"):
        assert desk.get(address, OWNER).headers["location"] == here
    pipeline = place.create(partitions=1)
    assert "no watch of the name" in words(desk.get(f"/{pipeline.name}", below="/watches"))


def test_refused_file_of_a_watch_is_shown_as_refused(shop: WatchedTopic, desk: Desk, place: Workplace) -> None:
    write_watch_file(place.folder, shop, lateness="soon")
    told = line_of(desk, shop)
    assert f"{shop.name} watch" in told
    assert "unknown" in told
    answer = desk.get(f"/{shop.name}", below="/watches")
    assert (answer.status_code, "lateness" in words(answer)) == (409, True)


def test_status_names_each_watch_with_its_newest_look_and_a_refused_file(shop: WatchedTopic, place: Workplace) -> None:
    def ask() -> dict[str, str]:
        shown = describe_watches(survey_watches(*watch_files().read()))
        return {each["watch"]: f"{each['state']}: {each['detail']}" for each in shown.document}

    assert ask() == {shop.name: "never looked: "}
    shop.delete([3])
    shop.look()
    assert ask() == {shop.name: "wrong: missing 1"}
    write_watch_file(place.folder, shop, recheck=101)
    assert "recheck" in ask()[shop.name]
    write_watch_file(place.folder, shop, ledger="nowhere")
    assert ask()[shop.name].startswith("unknown: ")


def test_data_docs_have_a_page_of_the_looks_which_is_written_again_after_a_look(
    shop: WatchedTopic, desk: Desk, place: Workplace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(DOCS_VARIABLE, str(tmp_path))

    def build() -> list[int]:
        built, failures = build_all_docs()
        assert not failures
        return [each.written for each in built if each.pipeline == shop.name]

    assert (build(), build()) == ([1], [0])
    assert "No look was stored yet" in words(desk.get(f"/{shop.name}/index.html", below="/docs"))
    shop.delete([3, 4])
    shop.look()
    assert (build(), build()) == ([1], [0])
    told = words(desk.get(f"/{shop.name}/index.html", below="/docs"))
    assert f"wrong 2 {shop.name}[0] 3..5" in told
    desk.airflow.own.append(("nightly", shop.name))
    assert "a watch wrong" in words(desk.get("/index.html", OWNER, "/docs"))
    assert shop.name not in words(desk.get("/index.html", OTHER, "/docs"))
    (place.folder / f"{shop.name}.yaml").unlink()
    place.create()
    build_all_docs()
    assert not (tmp_path / shop.name).exists()


def test_many_partitions_are_filtered_sorted_and_paged(
    kafka: Kafka, warehouse_dsn: str, place: Workplace, desk: Desk
) -> None:
    shop = WatchedTopic(kafka.options, warehouse_dsn, partitions=30)
    for partition in range(30):
        shop.produce(2, partition)
        shop.insert(range(2) if partition != 27 else [0], partition)
    write_watch_file(place.folder, shop)
    shop.look()
    first = desk.get(f"/{shop.name}", below="/watches").text
    assert first.count('<svg class="ribbon"') == 25
    worst = desk.get(f"/{shop.name}?sort=-unproved", below="/watches").text
    assert worst.index(f"{shop.name}[27]") < worst.index(f"{shop.name}[0]</th>")
    found = page_of(desk, shop, "?q=[27]")
    assert "1 of 30 partitions" in found
    assert desk.get(f"/{shop.name}?sort=secret", below="/watches").status_code == 409
