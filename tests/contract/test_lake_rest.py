"""What the sink of an Iceberg table promises with a catalog that is asked over HTTP, and whose answers get lost.

``test_lake`` runs over such a catalog, too, if the catalog matters.
"""

import pickle
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from socket import create_server
from threading import Barrier

import pytest

from batchledger.model.batch import Attempt
from batchledger.model.errors import BatchledgerError, ConfigurationError, OutcomeUnknownError, ServiceUnavailableError
from batchledger.sinks.iceberg.catalog import LakeCatalog
from batchledger.sinks.iceberg.coordinates import Change, as_coordinates
from batchledger.sinks.iceberg.rest import READ_PROPERTY
from batchledger.sinks.iceberg.table import IcebergTable
from tests.contract import life
from tests.contract.lake_warehouse import LakeWarehouse, open_lake
from tests.contract.life import FIRST, OTHER, SECOND
from tests.endpoints import HOST, free_port
from tests.fakes.work import ROW_SCHEMA
from tests.rest_catalog import LOGIN, PASSWORD, Fault, RestServer

NONE = as_coordinates([])
LOST = [each for each in Fault if each.is_made]


@pytest.fixture
def lake(warehouse_dsn: str, tmp_path: Path, rest_server: RestServer) -> Iterator[LakeWarehouse]:
    yield from open_lake(warehouse_dsn, tmp_path, rest_server.connect())


def another(lake: LakeWarehouse, server: RestServer, **changes: str) -> IcebergTable:
    """The table, as another process sees it."""
    return IcebergTable(server.connect(**changes), (lake.schema, "orders"))


def commit(table: IcebergTable, attempt: Attempt) -> None:
    """Commit the staged rows in the lake alone."""
    change = Change(NONE, NONE, sum(map(len, attempt.batch.ranges)))
    table.commit(attempt, None, change, read_epoch=int, is_found=True)


def meet_before_committing(server: RestServer) -> None:
    """Let the next two commits arrive before either is made."""
    barrier = Barrier(2, action=lambda: setattr(server, "before_commit", None))
    server.before_commit = lambda: barrier.wait(120) and None


def try_to(do: Callable[[], None]) -> type[BaseException] | None:
    """Return what it raises."""
    try:
        do()
    except BatchledgerError as error:
        return type(error)
    return None


def test_batches_and_their_replay_are_published_and_a_reader_sees_each_row_once(lake: LakeWarehouse) -> None:
    life.take_to_published(lake, FIRST, OTHER)
    life.take_to_published(lake, SECOND)
    life.publish(lake, life.take_replay_to_audited(lake, FIRST))
    assert life.target_coordinates(lake) == sorted(life.rows_of([FIRST, OTHER, SECOND]))
    assert lake.prove().holds


def test_of_two_publishers_at_once_one_is_refused_and_publishes_on_top(
    lake: LakeWarehouse, rest_server: RestServer
) -> None:
    other_pipeline = replace(lake, pipeline=f"{lake.pipeline}_other")
    attempts = [life.take_to_audited(lake, FIRST), life.take_to_audited(other_pipeline, SECOND)]
    meet_before_committing(rest_server)
    with ThreadPoolExecutor() as pool:
        list(pool.map(lambda each: commit(another(lake, rest_server), each), attempts))
    assert rest_server.count_refused(lake.schema) == 1
    assert life.target_coordinates(lake) == life.rows_of([FIRST, SECOND])
    other_pipeline.drop()


def test_of_two_who_commit_the_same_batch_at_once_one_does_and_the_other_has_to_look(
    lake: LakeWarehouse, rest_server: RestServer
) -> None:
    attempt = life.announce(lake, life.take_to_audited(lake, FIRST))
    meet_before_committing(rest_server)
    with ThreadPoolExecutor() as pool:
        tries = [pool.submit(try_to, lambda: commit(another(lake, rest_server), attempt)) for _ in range(2)]
    assert {each.result() for each in tries} == {None, OutcomeUnknownError}
    assert life.target_coordinates(lake) == life.rows_of([FIRST])


def test_of_two_who_create_the_table_at_once_both_can_write_to_it(lake: LakeWarehouse, rest_server: RestServer) -> None:
    attempt = lake.ledger.open_attempt(life.store(lake, FIRST).batch_id, "run-1")
    meet_before_committing(rest_server)
    with ThreadPoolExecutor() as pool:
        made = [pool.submit(another(lake, rest_server).prepare, attempt, ROW_SCHEMA) for _ in range(2)]
    assert [each.result().schema.names for each in made] == [ROW_SCHEMA.names] * 2
    assert rest_server.count_refused(lake.schema) == 1


@pytest.mark.parametrize("fault", LOST, ids=lambda fault: fault.name.lower())
def test_commit_whose_answer_is_lost_is_unknown_and_then_found(
    lake: LakeWarehouse, rest_server: RestServer, fault: Fault
) -> None:
    attempt = life.announce(lake, life.take_to_audited(lake, FIRST))
    rest_server.faults = [fault]
    # Only silence has to be waited for; a busy machine may be silent for a while, too.
    patience = {READ_PROPERTY: "3000"} if fault is Fault.LOST_SILENCE else {}
    with pytest.raises(OutcomeUnknownError):
        commit(another(lake, rest_server, **patience), attempt)
    assert lake.sink.find_commit(attempt)
    assert life.target_coordinates(lake) == life.rows_of([FIRST])


def test_commit_that_was_not_made_is_unknown_not_found_and_made_by_the_next_try(
    lake: LakeWarehouse, rest_server: RestServer
) -> None:
    attempt = life.announce(lake, life.take_to_audited(lake, FIRST))
    rest_server.faults = [Fault.REFUSED_UNAVAILABLE]
    with pytest.raises(OutcomeUnknownError):
        commit(another(lake, rest_server), attempt)
    assert not lake.sink.find_commit(attempt)
    commit(lake.lake_table, attempt)
    assert life.target_coordinates(lake) == life.rows_of([FIRST])


def test_replay_whose_commit_was_made_twice_has_to_be_looked_up(lake: LakeWarehouse, rest_server: RestServer) -> None:
    life.take_to_published(lake, FIRST)
    attempt = life.take_replay_to_audited(lake, FIRST)
    rest_server.faults = [Fault.MADE_TWICE]
    with pytest.raises(OutcomeUnknownError):
        life.publish(lake, attempt)
    assert {row["_batch_id"] for row in lake.read_target()} == {attempt.batch.batch_id}
    assert life.target_coordinates(lake) == life.rows_of([FIRST])


def test_commit_that_was_made_twice_is_unknown_also_where_the_catalog_cannot_be_asked_then(
    lake: LakeWarehouse, rest_server: RestServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempt = life.announce(lake, life.take_to_audited(lake, FIRST))
    rest_server.faults = [Fault.MADE_TWICE]
    monkeypatch.setattr(rest_server, "before_commit", lambda: monkeypatch.setattr(rest_server, "is_away", True))
    with pytest.raises(OutcomeUnknownError):
        commit(lake.lake_table, attempt)
    monkeypatch.undo()
    assert lake.sink.find_commit(attempt)


def test_i4_commit_that_is_under_way_is_refused_once_the_sink_was_asked(
    lake: LakeWarehouse, rest_server: RestServer
) -> None:
    """S71: the zombie's request has reached the catalog when another run asks."""
    attempt = life.announce(lake, life.take_to_audited(lake, FIRST))
    asked = []

    def ask() -> None:
        rest_server.before_commit = None
        asked.append(another(lake, rest_server).find_commit(attempt))

    rest_server.before_commit = ask
    with pytest.raises(ServiceUnavailableError) as raised:
        commit(another(lake, rest_server), attempt)
    assert raised.type is ServiceUnavailableError
    assert (asked, lake.read_target()) == ([False], [])


def test_who_cannot_ask_what_became_of_a_commit_does_not_say_that_it_was_not_made(
    lake: LakeWarehouse, rest_server: RestServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """I9: it was."""
    attempt = life.announce(lake, life.take_to_audited(lake, FIRST))
    commit(lake.lake_table, attempt)
    stranger = another(lake, rest_server, credential=f"nobody:{PASSWORD}")
    monkeypatch.setattr(rest_server, "is_away", True)
    for table, expected in ((lake.lake_table, ServiceUnavailableError), (stranger, ConfigurationError)):
        with pytest.raises(expected) as raised:
            table.find_commit(attempt)
        assert raised.type is expected
        assert "ublished" not in str(raised.value)
        assert "committed" not in str(raised.value)
    monkeypatch.undo()
    assert lake.sink.find_commit(attempt)


def test_token_that_has_expired_is_asked_for_again(lake: LakeWarehouse, rest_server: RestServer) -> None:
    attempt = life.announce(lake, life.take_to_audited(lake, FIRST))
    rest_server.token = "another"  # noqa: S105
    commit(lake.lake_table, attempt)
    assert life.target_coordinates(lake) == life.rows_of([FIRST])


@pytest.mark.parametrize("has_token", [False, True], ids=["credential", "token"])
def test_tasks_get_what_the_server_says_of_the_table_and_not_the_login(
    lake: LakeWarehouse, rest_server: RestServer, monkeypatch: pytest.MonkeyPatch, has_token: bool
) -> None:
    monkeypatch.setitem(rest_server.table_config, "s3.session-token", "lent-for-an-hour")
    if has_token:
        lake = replace(lake, other=rest_server.connect(token=rest_server.token))
    attempt = lake.ledger.open_attempt(life.store(lake, FIRST).batch_id, "run-1")
    pickled = pickle.dumps(lake.sink.open_staging(attempt, ROW_SCHEMA).files)
    assert b"lent-for-an-hour" in pickled
    assert not any(each.encode() in pickled for each in (PASSWORD, rest_server.token))
    with pickle.loads(pickled).open() as files:  # noqa: S301
        files.write(life.batch_of_rows(life.rows_of([FIRST])))
    assert files.table.io.properties["s3.session-token"] == "lent-for-an-hour"
    assert files.manifest is not None


def fail_to_look_at(catalog: LakeCatalog) -> BatchledgerError:
    """Return what it raises to ask a catalog; nothing of it tells the password."""
    with pytest.raises(BatchledgerError) as raised:
        IcebergTable(catalog, ("shop", "orders")).identify()
    assert PASSWORD not in "".join(traceback.format_exception(raised.value))
    return raised.value


def test_server_that_is_down_is_told_with_what_to_do(rest_server: RestServer) -> None:
    error = fail_to_look_at(rest_server.connect(uri=f"http://{HOST}:{free_port()}"))
    assert type(error) is ServiceUnavailableError
    assert "do not answer" in str(error)
    assert "Try again when they answer, or correct the catalog's connection" in str(error)


@pytest.mark.parametrize("login", [{"credential": f"{LOGIN}:{PASSWORD}"}, {"token": PASSWORD}], ids=["token", "config"])
def test_server_that_takes_a_request_and_says_nothing_is_not_waited_for_for_ever(login: dict[str, str]) -> None:
    with closing(create_server((HOST, 0))) as silent:
        uri = f"http://{HOST}:{silent.getsockname()[1]}"
        error = fail_to_look_at(LakeCatalog("lake", {"type": "rest", "uri": uri, READ_PROPERTY: "200", **login}))
        assert type(error) is ServiceUnavailableError
        # It was asked once: a client that gives up does not ask again to close.
        silent.setblocking(False)
        silent.accept()[0].close()
        with pytest.raises(BlockingIOError):
            silent.accept()


def test_login_that_the_server_refuses_has_to_be_corrected(rest_server: RestServer) -> None:
    error = fail_to_look_at(rest_server.connect(credential=f"nobody:{PASSWORD}"))
    assert type(error) is ConfigurationError
    assert "refuses the login.\ninvalid_client: no such client.\nCorrect login and password" in str(error)


def test_address_that_is_none_has_to_be_corrected(rest_server: RestServer) -> None:
    error = fail_to_look_at(rest_server.connect(uri=f"http://{LOGIN}:{PASSWORD}@:80"))
    assert type(error) is ConfigurationError
    assert "no such catalog.\nInvalidURL" in str(error)
    assert "cannot be opened with the properties of its connection" in str(error)
