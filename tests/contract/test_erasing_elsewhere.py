"""What a topic and an Iceberg table say to an erasure: they cannot do it within the ledger's transaction."""

import pytest

from batchledger.model.erasure import ErasureKey
from batchledger.model.errors import DecisionRefusedError
from tests.contract import life
from tests.contract.conftest import ELSEWHERE
from tests.contract.decided import BY_ANA
from tests.contract.life import FIRST
from tests.contract.warehouses import Warehouse

WAREHOUSES = ELSEWHERE


def test_erasure_is_refused_with_what_can_be_done_instead(warehouse: Warehouse) -> None:
    life.take_to_published(warehouse, FIRST)
    key = ErasureKey.parse(["message_id=orders[0]@1"])
    with pytest.raises(DecisionRefusedError, match=r"(?s)Nothing was erased.*guides/erasure"):
        warehouse.decisions.erase(warehouse.pipeline, key, BY_ANA, lambda access: warehouse.sink.erase(access, key))
    assert warehouse.read_pipeline_decisions() == []
    assert warehouse.prove().findings == ()
