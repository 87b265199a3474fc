"""Orders as the ledger keeps them in a request, and which of them need a second person. Pure.

What is written holds no value of a record. An erasure cannot be read back: the second person repeats its key.
"""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any, TypeGuard

from batchledger.lifecycle.orders import Accept, AcceptLoss, AtOnce, DropQuarantined, Erase, Skip
from batchledger.model.batch import DecisionKind
from batchledger.model.erasure import ErasureKey
from batchledger.model.offsets import OffsetRange, TopicPartition, single_offset
from batchledger.model.requests import TwoPersonOrder
from batchledger.planning.live import StartPolicy
from batchledger.planning.rewind import Rewind

TwoPerson = Accept | AcceptLoss | Skip | Rewind | DropQuarantined
"""Orders that can be kept until a second person confirms them."""


def needs_second_person(order: AtOnce, asked_for: Collection[TwoPersonOrder]) -> TypeGuard[TwoPerson | Erase]:
    """Whether an order is one of those for which the pipeline file asks for a second person."""
    if isinstance(order, Rewind):
        return order.truncate and TwoPersonOrder.TRUNCATE in asked_for
    return order.kind.value in {each.value for each in asked_for}


def write_order(order: TwoPerson) -> dict[str, Any]:
    """Return the order as JSON. ``read_order`` reads it back."""
    kind = {"kind": order.kind.value}
    match order:
        case Accept(batch_id):
            return {**kind, "batch": batch_id}
        case AcceptLoss(ranges, discard) | Skip(ranges, discard):
            return {**kind, "ranges": _write_ranges(ranges), "discard_batch": discard}
        case Rewind(to, truncate, allow_expired):
            return {**kind, "to": _write_target(to), "truncate": truncate, "allow_expired": allow_expired}
        case DropQuarantined(dropped):
            return {**kind, "ranges": None if dropped is None else _write_ranges(dropped)}


def write_erasure(key: ErasureKey, code: str) -> dict[str, Any]:
    """Return an erasure as JSON, without its values: who has the code can say whether a key is the one."""
    return {"kind": Erase.kind.value, "columns": list(key.columns), "sealed": key.seal(code)}


def read_order(content: Mapping[str, Any]) -> TwoPerson:
    """Return the order that ``write_order`` has written. Raises ValueError for another one."""
    match DecisionKind(content["kind"]):
        case DecisionKind.ACCEPT:
            return Accept(content["batch"])
        case DecisionKind.ACCEPT_LOSS:
            return AcceptLoss(_read_ranges(content["ranges"]), content["discard_batch"])
        case DecisionKind.SKIP:
            return Skip(_read_ranges(content["ranges"]), content["discard_batch"])
        case DecisionKind.REWIND:
            return Rewind(_read_target(content["to"]), content["truncate"], content["allow_expired"])
        case DecisionKind.QUARANTINE_DROP:
            return DropQuarantined(None if content["ranges"] is None else _read_ranges(content["ranges"]))
        case other:
            raise ValueError(f"{other} is no order of a request")


def _write_ranges(ranges: Sequence[OffsetRange]) -> list[str]:
    return [str(each) for each in ranges]


def _read_ranges(texts: Sequence[str]) -> tuple[OffsetRange, ...]:
    return tuple(OffsetRange.parse(each) for each in texts)


def _write_target(to: StartPolicy | datetime | Mapping[TopicPartition, int]) -> str | list[str]:
    """Return ``earliest``, a moment, or for each partition the range of its first offset."""
    if isinstance(to, Mapping):
        return [str(single_offset(each.topic, each.partition, offset)) for each, offset in to.items()]
    return to.isoformat() if isinstance(to, datetime) else to.value


def _read_target(written: str | list[str]) -> Any:
    if isinstance(written, list):
        return {each.partition: each.start for each in _read_ranges(written)}
    return StartPolicy.EARLIEST if written == StartPolicy.EARLIEST else datetime.fromisoformat(written)
