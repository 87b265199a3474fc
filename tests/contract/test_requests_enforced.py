"""What PostgreSQL refuses of requests, whatever program inserts a decision; and that the chain holds who asked."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import psycopg
import pytest
from psycopg import sql

from batchledger.books.history import load_published_history
from batchledger.ledger.requests import list_requests, load_request
from batchledger.model.batch import DecisionRecord
from batchledger.model.effects import Effect
from batchledger.model.errors import DecisionRefusedError
from batchledger.proof.decision_chain import find_break
from tests.conftest import as_superuser
from tests.contract.decided import BY_ANA, BY_BEN, record_of
from tests.contract.warehouses import PostgresWarehouse, create_role, open_postgres, role_of

ORDER = {"kind": "quarantine-drop", "ranges": None}
EFFECT = Effect({"quarantined": {"orders[0] 1..2": 1}}, {"quarantined": {"orders[0] 1..2": 0}})


@pytest.fixture
def warehouse(warehouse_dsn: str) -> Iterator[PostgresWarehouse]:
    """A pipeline of this test's own."""
    yield from open_postgres(warehouse_dsn)


@pytest.fixture
def request_of_ana(warehouse: PostgresWarehouse) -> DecisionRecord:
    return record_of(warehouse.decisions.request(warehouse.pipeline, ORDER, BY_ANA, EFFECT))


def insert(dsn: str, request: DecisionRecord, **columns: Any) -> None:
    """Insert what would carry the request out; ``columns`` differ from it."""
    values = {
        "pipeline": request.pipeline,
        "kind": "quarantine-drop",
        "decided_by": "ben",
        "reason": "why",
        "before": '{"quarantined": {"orders[0] 1..2": 1}}',
        "after": '{"quarantined": {"orders[0] 1..2": 0}}',
        "request_id": request.decision_id,
        **columns,
    }
    statement = sql.SQL("insert into batchledger.decision ({}) values ({})").format(
        sql.SQL(", ").join(map(sql.Identifier, values)), sql.SQL(", ").join(sql.Placeholder() * len(values))
    )
    with psycopg.connect(dsn) as connection:
        connection.execute(statement, list(values.values()))


def alter(dsn: str, statement: str, *parameters: object) -> None:
    """Do what the owner of the table can do behind its triggers."""
    with psycopg.connect(dsn) as connection:
        connection.execute("alter table batchledger.decision disable trigger user")
        connection.execute(statement.encode(), parameters)
        connection.execute("alter table batchledger.decision enable trigger user")


def test_decision_that_fits_the_request_is_taken(warehouse: PostgresWarehouse, request_of_ana: DecisionRecord) -> None:
    """The negative control of all refusals below."""
    insert(warehouse.dsn, request_of_ana)
    assert find_break(load_published_history(warehouse.dsn, warehouse.pipeline).decisions) is None


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"decided_by": BY_ANA.decided_by}, "a second person has to confirm"),
        ({"uid": 1001, "host": "host7"}, "a second person has to confirm"),
        ({"kind": "rewind"}, "is not what the request has shown"),
        ({"before": '{"quarantined": {"orders[0] 1..3": 2}}'}, "is not what the request has shown"),
        ({"after": None}, "is not what the request has shown"),
        ({"request_id": 9_000_000_000}, "there is no such request"),
    ],
)
def test_decision_that_does_not_fit_the_request_is_refused(
    warehouse: PostgresWarehouse, request_of_ana: DecisionRecord, columns: dict[str, Any], said: str
) -> None:
    with pytest.raises(psycopg.errors.CheckViolation, match=said):
        insert(warehouse.dsn, request_of_ana, **columns)


@pytest.mark.parametrize(
    "columns",
    [
        {"kind": "quarantine-drop"},
        {"requested_order": None},
        {"requested_order": '{"kind": "pause"}'},
        {"requested_order": "[]"},
        {"before": None},
        {"after": "5"},
    ],
)
def test_request_that_no_list_could_show_is_refused(
    warehouse: PostgresWarehouse, request_of_ana: DecisionRecord, columns: dict[str, Any]
) -> None:
    asked = {"kind": "request", "requested_order": '{"kind": "skip"}', "request_id": None}
    with pytest.raises(psycopg.errors.CheckViolation, match="decision_asks_for_an_order"):
        insert(warehouse.dsn, request_of_ana, **asked | columns)
    insert(warehouse.dsn, request_of_ana, **asked)


def test_request_of_another_pipeline_is_refused(
    warehouse: PostgresWarehouse, request_of_ana: DecisionRecord, warehouse_dsn: str
) -> None:
    for other in open_postgres(warehouse_dsn):
        other.decisions.pause(other.pipeline, BY_BEN)
        with pytest.raises(psycopg.errors.CheckViolation, match="there is no such request"):
            insert(warehouse.dsn, request_of_ana, pipeline=other.pipeline)


def test_expired_request_is_refused_and_not_listed(
    warehouse: PostgresWarehouse, request_of_ana: DecisionRecord
) -> None:
    assert list_requests(warehouse.dsn, warehouse.pipeline) == [request_of_ana]
    assert request_of_ana in list_requests(warehouse.dsn)
    earlier = "update batchledger.decision set decided_at = decided_at - interval '24 hours' where decision_id = %s"
    alter(warehouse.dsn, earlier, request_of_ana.decision_id)
    assert list_requests(warehouse.dsn, warehouse.pipeline) == []
    with pytest.raises(psycopg.errors.CheckViolation, match="has expired"):
        insert(warehouse.dsn, request_of_ana)


def test_request_from_the_future_is_valid_for_no_longer(
    warehouse: PostgresWarehouse, request_of_ana: DecisionRecord
) -> None:
    asked = {"kind": "request", "requested_order": '{"kind": "skip"}', "request_id": None}
    insert(warehouse.dsn, request_of_ana, **asked, decided_at=datetime(2099, 1, 1, tzinfo=UTC))
    assert all(each.decided_at < datetime.now(UTC) for each in list_requests(warehouse.dsn, warehouse.pipeline))


def test_request_ends_once(warehouse: PostgresWarehouse, request_of_ana: DecisionRecord) -> None:
    insert(warehouse.dsn, request_of_ana)
    for kind in ("quarantine-drop", "withdraw"):
        with pytest.raises(psycopg.errors.UniqueViolation, match="decision_by_request"):
            insert(warehouse.dsn, request_of_ana, kind=kind)
    assert list_requests(warehouse.dsn, warehouse.pipeline) == []


def test_statement_cannot_choose_who_asked(warehouse: PostgresWarehouse, request_of_ana: DecisionRecord) -> None:
    insert(warehouse.dsn, request_of_ana, requested_by="eve")
    end = warehouse.decisions.find_end(request_of_ana.decision_id)
    assert end is not None
    assert end.requested_by == BY_ANA.decided_by


def test_request_that_is_not_there_is_refused_with_what_to_do(
    warehouse: PostgresWarehouse, request_of_ana: DecisionRecord
) -> None:
    assert load_request(warehouse.dsn, request_of_ana.decision_id) == request_of_ana
    paused = record_of(warehouse.decisions.pause(warehouse.pipeline, BY_BEN))
    for number in (paused.decision_id, 9_000_000_000):
        with pytest.raises(DecisionRefusedError, match=r"(?s)holds no request.*batchledger requests"):
            load_request(warehouse.dsn, number)


@pytest.mark.parametrize(
    ("change", "place"),
    [
        ("update batchledger.decision set requested_by = 'eve' where request_id = %s", 1),
        ("update batchledger.decision set request_id = null, requested_by = null where request_id = %s", 1),
        ('update batchledger.decision set requested_order = \'{"kind": "skip"}\' where decision_id = %s', 0),
    ],
)
def test_change_of_who_asked_or_for_what_is_found(
    warehouse: PostgresWarehouse, request_of_ana: DecisionRecord, change: str, place: int
) -> None:
    insert(warehouse.dsn, request_of_ana)
    chain = load_published_history(warehouse.dsn, warehouse.pipeline).decisions
    assert find_break(chain) is None
    alter(warehouse.dsn, change, request_of_ana.decision_id)
    (finding,) = warehouse.prove().findings
    assert (finding.invariant, finding.where) == ("decision", f"decision_id {chain.decisions[place].decision_id}")


def test_people_at_the_command_line_need_a_login_each(warehouse: PostgresWarehouse) -> None:
    """Names and numbers of users come from the program. The database knows its logins."""
    warehouse.decisions.pause(warehouse.pipeline, BY_BEN)
    of_ana = {"decided_by": "ana", "uid": 1000, "host": "host7"}
    of_ben = {"decided_by": "ben", "uid": 1001, "host": "host7"}
    with create_role(warehouse.dsn) as ana, create_role(warehouse.dsn) as ben:
        join = sql.SQL("grant {} to {}, {}").format(*map(sql.Identifier, map(role_of, (warehouse.dsn, ana, ben))))
        with psycopg.connect(as_superuser(warehouse.dsn)) as connection:
            connection.execute(join)
        request = _ask_as(ana, warehouse, of_ana)
        for dsn, columns in (
            (ana, of_ben),
            (ben, of_ben | {"uid": 1000}),
            (ben, of_ben | {"decided_by": "ana"}),
            (ben, of_ben | {"uid": None, "host": None}),
        ):
            with pytest.raises(psycopg.errors.CheckViolation, match="a second person"):
                insert(dsn, request, **columns)
        insert(ben, request, **of_ben)
    end = warehouse.decisions.find_end(request.decision_id)
    assert end is not None
    assert end.people == f"ben (uid 1001 @host7, role {role_of(ben)}), request {request.decision_id} of ana"


def _ask_as(dsn: str, warehouse: PostgresWarehouse, columns: dict[str, Any]) -> DecisionRecord:
    with psycopg.connect(dsn) as connection:
        connection.execute(
            "insert into batchledger.decision "
            "(pipeline, kind, decided_by, reason, before, after, uid, host, requested_order) values "
            "(%s, 'request', %s, 'why', '{\"quarantined\": {\"orders[0] 1..2\": 1}}', "
            '\'{"quarantined": {"orders[0] 1..2": 0}}\', %s, %s, \'{"kind": "quarantine-drop"}\')',
            [warehouse.pipeline, columns["decided_by"], columns["uid"], columns["host"]],
        )
    (request,) = list_requests(warehouse.dsn, warehouse.pipeline)
    return request
