"""What becomes of what a ledger remembers, and of records that lie in quarantine, once columns are protected."""

from dataclasses import dataclass, replace

import psycopg
import pytest

from batchledger.ledger.evidence import PostgresEvidence
from batchledger.ledger.known_hashes import require_key_secret, require_known_forms
from batchledger.model.batch import Batch, Decision, Lane, RecordOrigin
from batchledger.model.checks import FailedRecord
from batchledger.model.erasure import ErasureKey
from batchledger.model.errors import ConfigurationError
from batchledger.model.offsets import OffsetRange
from batchledger.planning.live import Plan
from tests.contract import life
from tests.contract.decided import BY_ANA, record_of
from tests.contract.life import FIRST, ORDERS_0, SECOND
from tests.contract.warehouses import PostgresWarehouse

WAREHOUSES = ("postgres",)


@dataclass
class ProtectingWarehouse(PostgresWarehouse):
    """Its pipeline protects columns."""

    @property
    def evidence(self) -> PostgresEvidence:
        return PostgresEvidence(self.dsn, keeps_payloads=False)


def read_payloads(warehouse: PostgresWarehouse) -> list[tuple[int, bytes | None, bool, str]]:
    query = (
        'select "offset", value, payload_kept, error from batchledger.quarantine where pipeline = %s order by "offset"'
    )
    with psycopg.connect(warehouse.dsn) as connection:
        return connection.execute(query, [warehouse.pipeline]).fetchall()


def test_replay_of_quarantine_keeps_the_bytes_that_lie_there_and_nothing_else_is_kept(
    warehouse: PostgresWarehouse,
) -> None:
    """Kafka may have lost the record: these bytes are the last."""
    poison = [(ORDERS_0, 0), (ORDERS_0, 1)]
    attempt = life.stage(warehouse, life.store(warehouse, FIRST), poison=poison)
    life.audit(warehouse, attempt)
    life.publish(warehouse, attempt)
    protecting = ProtectingWarehouse(warehouse.dsn, warehouse.pipeline, warehouse.schema)
    plan = Plan((OffsetRange(ORDERS_0, 0, 2),), 0, lane=Lane.REPLAY, origin=RecordOrigin.QUARANTINE)
    replay = warehouse.ledger.store_replay(warehouse.pipeline, plan, "again", Decision("ana", "because"), "key")
    attempt = life.stage(protecting, replay, "again", poison[:1])
    judged = FailedRecord(ORDERS_0, 1, ("positive",))
    protecting.evidence.set_aside(attempt, [judged], protecting.evidence.read_quarantine(replay))
    protecting.sink.remove_staged(attempt, [judged.range])
    life.audit(protecting, attempt)
    life.publish(protecting, attempt)
    value = b"\x00{poison"
    assert [each[:3] for each in read_payloads(warehouse)] == [(0, value, True), (1, value, True)]
    next_ = OffsetRange(ORDERS_0, FIRST.until, FIRST.until + 1)
    attempt = life.stage(protecting, life.store(protecting, next_, run="next"), "next", [(ORDERS_0, FIRST.until)])
    life.audit(protecting, attempt)
    life.publish(protecting, attempt)
    assert read_payloads(warehouse)[2][:3] == (FIRST.until, None, False)


def erase(warehouse: PostgresWarehouse, value: str, form: str = "") -> None:
    key = replace(ErasureKey.parse([f"message_id={value}"]), form=form)
    record_of(
        warehouse.decisions.erase(warehouse.pipeline, key, BY_ANA, lambda access: warehouse.sink.erase(access, key))
    )


def require(warehouse: PostgresWarehouse, batch: Batch, form: str) -> None:
    require_known_forms(warehouse.dsn, lambda columns: form if columns == ["message_id"] else "", batch)


def test_batch_that_may_bring_erased_rows_back_in_another_form_is_refused(warehouse: PostgresWarehouse) -> None:
    life.take_to_published(warehouse, FIRST)
    erase(warehouse, f"{ORDERS_0}@1")
    again = life.store_replay(warehouse, FIRST)
    require(warehouse, again, "")
    with pytest.raises(ConfigurationError, match="may bring rows back that were erased by message_id") as refused:
        require(warehouse, again, "message_id hash 01")
    about = (refused.value.batch_id, refused.value.pipeline, refused.value.subject)
    assert about == (again.batch_id, warehouse.pipeline, "message_id")
    require(warehouse, life.store(warehouse, SECOND, run="run-2"), "message_id hash 01")


def test_key_erased_again_in_the_new_form_counts_once_the_old_one_is_forgotten(
    warehouse: PostgresWarehouse, warehouse_dsn: str
) -> None:
    life.take_to_published(warehouse, FIRST)
    erase(warehouse, f"{ORDERS_0}@1")
    erase(warehouse, "5f3a", "message_id hash 01")
    again = life.store_replay(warehouse, FIRST)
    for form in ("", "message_id hash 01", "message_id hash 02"):
        with pytest.raises(ConfigurationError, match="may bring rows back"):
            require(warehouse, again, form)
    forget = "delete from batchledger.erased_key where pipeline = %s and columns = %s and form = ''"
    # As the ledger's owner: a role of a pipeline forgets nothing.
    with psycopg.connect(warehouse_dsn) as connection:
        connection.execute(forget, [warehouse.pipeline, ["message_id"]])
    require(warehouse, again, "message_id hash 01")


@pytest.mark.parametrize("secret", [b"another secret of keys, long enough", None])
def test_keys_that_would_be_hashed_with_another_secret_are_refused(
    warehouse: PostgresWarehouse, secret: bytes | None
) -> None:
    """The tests' ledger has taken the stack's secret over."""

    def read_secret() -> bytes:
        if secret is None:
            raise ConfigurationError("no secret")
        return secret

    require_key_secret(warehouse.dsn, warehouse.pipeline, warehouse.read_secret)
    with pytest.raises(ConfigurationError, match="another secret" if secret else "no secret"):
        require_key_secret(warehouse.dsn, warehouse.pipeline, read_secret)
