"""Keys that are remembered stay known: a key whose column is hashed from now on, or no longer, is refused."""

from datetime import timedelta

import pyarrow as pa
import pytest

from batchledger.formats.arrow_types import mark_hashed
from batchledger.model.batch import Attempt
from batchledger.model.errors import ConfigurationError
from batchledger.model.offsets import OffsetRange
from batchledger.model.records.rules import Deduplication, SequenceRule, Upsert
from tests.contract import life
from tests.contract.life import ORDERS_0
from tests.contract.warehouses import Warehouse
from tests.fakes.work import ROW_SCHEMA

pytestmark = pytest.mark.rules


def stage_hashed(warehouse: Warehouse, *emails: str, hashed: bool) -> Attempt:
    """Stage and audit the next records, whose keys are these texts, in a column that is declared as hashed or not."""
    start = life.next_offsets(warehouse).get(ORDERS_0, 0)
    rows = [
        {
            "_topic": ORDERS_0.topic,
            "_partition": 0,
            "_offset": start + index,
            "_timestamp": life.NOW,
            "message_id": "m",
            "email": email,
            "seq": index,
            "_deleted": False,
        }
        for index, email in enumerate(emails)
    ]
    more = [pa.field("email", pa.string()), pa.field("seq", pa.int64()), pa.field("_deleted", pa.bool_())]
    schema = pa.schema([*ROW_SCHEMA, *(more if warehouse.upsert else more[:2])])
    schema = mark_hashed(schema, ["email"] if hashed else [])
    batch = life.store(warehouse, OffsetRange(ORDERS_0, start, start + len(emails)), run=f"run-{start}")
    rows_ = pa.RecordBatch.from_pylist(rows, schema=schema)
    attempt = life.stage(warehouse, batch, f"run-{start}", rows=rows_)
    life.audit(warehouse, attempt)
    return attempt


def with_rule(warehouse: Warehouse, rule: str) -> Warehouse:
    """The warehouse with one rule whose key is the address."""
    match rule:
        case "dedupe.key":
            return warehouse.with_rules(Deduplication(("email",), timedelta(days=30)))
        case "sink.key":
            return warehouse.with_rules(upsert=Upsert(("email",)))
        case _:
            return warehouse.with_rules(sequence=SequenceRule(("email",), "seq"))


@pytest.mark.parametrize("rule", ["dedupe.key", "sink.key", "sequence.key"])
@pytest.mark.parametrize("is_added", [True, False])
def test_key_that_is_hashed_from_now_on_or_no_longer_is_refused_before_anything_is_staged(
    warehouse: Warehouse, rule: str, is_added: bool
) -> None:
    store = with_rule(warehouse, rule)
    life.publish(store, stage_hashed(store, "anna", "otto", hashed=not is_added))
    told = r"email as text, now as text, hashed\." if is_added else r"email as text, hashed, now as text\."
    with pytest.raises(ConfigurationError, match=f"(?s)^{rule} of .*{told}") as refused:
        stage_hashed(store, "anna", hashed=is_added)
    assert (refused.value.pipeline, refused.value.subject) == (store.pipeline, "email")
    assert len(store.read_target()) == 2
