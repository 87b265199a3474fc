"""What tests of decisions share: who decides and why, and batches that wait for a decision."""

from collections.abc import Mapping

from batchledger.model.balance import Balance
from batchledger.model.batch import Attempt, Batch, Decided, Decision, DecisionKind, DecisionRecord
from batchledger.model.offsets import OffsetRange, TopicPartition
from batchledger.planning.rewind import ResolvedRewind
from tests.contract import life
from tests.contract.warehouses import Warehouse

NO_BATCH = 9_000_000_000
BY_ANA = Decision("ana@host", "retention was too short")
BY_BEN = Decision("ben@host", "the rows were wrong")


def record_of(decided: Decided) -> DecisionRecord:
    assert decided.record is not None
    return decided.record


def give_up(
    warehouse: Warehouse,
    *ranges: OffsetRange,
    discard: int | None = None,
    kind: DecisionKind = DecisionKind.ACCEPT_LOSS,
) -> Batch:
    decided = warehouse.decisions.give_up(warehouse.pipeline, ranges, kind, BY_ANA, discard=discard)
    batch_id = record_of(decided).batch_id
    assert batch_id is not None
    return warehouse.ledger.load_batch(batch_id)


def rewind(
    warehouse: Warehouse,
    to: Mapping[TopicPartition, int],
    truncate: bool = False,
    epoch: int | None = None,
    given_up: tuple[OffsetRange, ...] = (),
) -> Decided:
    present = warehouse.decisions.load_epoch(warehouse.pipeline) if epoch is None else epoch
    empty = warehouse.sink.truncate if truncate else None
    return warehouse.decisions.rewind(warehouse.pipeline, ResolvedRewind(present, to, given_up), BY_ANA, empty)


def assert_proved(warehouse: Warehouse) -> None:
    verification = warehouse.prove()
    assert verification.holds, verification.findings


def take_to_blocked(warehouse: Warehouse, *ranges: OffsetRange, missing: int = 0, run: str = "run-1") -> Attempt:
    """Stage all but ``missing`` rows, without evidence of them either."""
    rows = life.batch_of_rows(life.rows_of(ranges)[missing:])
    attempt = life.stage(warehouse, life.store(warehouse, *ranges, run=run), run, rows=rows)
    staged = [each.rows for each in life.summarise(warehouse, attempt)]
    balances = [Balance(each, accepted=count) for each, count in zip(attempt.batch.ranges, staged, strict=True)]
    warehouse.ledger.record_audit(attempt, balances, [life.FAILED])
    return attempt


def count_dropped(decided: Decided) -> int:
    """How many records a decision has removed from quarantine."""
    return sum(decided.record.before["quarantined"].values()) if decided.record and decided.record.before else 0
