"""What a kind of sink forgets to say, the core does not trust it with."""

from collections.abc import Sequence
from dataclasses import MISSING, fields
from typing import Literal

import pytest
from pydantic import ValidationError
from typing_extensions import override

from batchledger.model.batch import Batch
from batchledger.model.capabilities import Capabilities
from batchledger.model.datasets import Dataset
from batchledger.model.records.rules import SinkMode
from batchledger.ports import CommittingSink, Sink
from batchledger.sinks.kind import SinkContext, SinkSection
from batchledger.sinks.kinds import KINDS
from batchledger.sinks.staging.staging import PostgresStaging


class Forgetful(SinkSection):
    """A kind that says no more than it has to."""

    type: Literal["forgetful"] = "forgetful"

    @property
    @override
    def sink_mode(self) -> SinkMode:
        return SinkMode.PRODUCE

    @property
    @override
    def capabilities(self) -> Capabilities:
        return Capabilities(shares_transaction=False, no_emptying=None, no_erasing=None)

    @property
    @override
    def target(self) -> str:
        return "somewhere"

    @property
    @override
    def alias(self) -> str:
        return "somewhere"

    @override
    def build(self, context: SinkContext) -> Sink:
        raise NotImplementedError

    @override
    def find_published(self, context: SinkContext, batch: Batch) -> tuple[Dataset, int | None]:
        raise NotImplementedError


def list_defaults(class_: type) -> Sequence[str]:
    return [each.name for each in fields(class_) if each.default is not MISSING or each.default_factory is not MISSING]


def test_capabilities_are_stated_one_by_one_and_none_has_a_default() -> None:
    assert list_defaults(Capabilities) == []
    with pytest.raises(TypeError, match="no_erasing"):
        Capabilities(shares_transaction=False, no_emptying=None)  # type: ignore[call-arg]


def test_sink_that_does_not_state_them_cannot_be_made() -> None:
    """Nor one that does not say how its target is called, whose it is, and what it held before."""

    class Silent(PostgresStaging, CommittingSink, Sink):
        pass

    with pytest.raises(TypeError, match="abstract") as told:
        Silent()
    for each in ("capabilities", "name", "find_claim", "find_old_rows", "find_commit"):
        assert each in str(told.value)


def test_kind_that_says_nothing_is_not_trusted_to_prove_joined_batches() -> None:
    assert not Forgetful().proves_joined_batches


def test_kind_that_says_nothing_is_not_given_columns_that_its_target_does_not_have() -> None:
    assert not Forgetful().takes_new_columns


def test_kind_has_to_say_what_becomes_of_a_row() -> None:
    """Whether a replay can take the place of rows is nothing to guess."""
    assert "sink_mode" in SinkSection.__abstractmethods__


def test_only_kinds_that_say_so_prove_joined_batches() -> None:
    said = [each for each in KINDS if "proves_joined_batches" in vars(each)]
    assert len(said) == 1
    assert said[0](table="orders").proves_joined_batches
    assert not said[0](table="orders", mode="upsert", key=["id"]).proves_joined_batches


def test_negative_control_kind_without_a_target_cannot_be_made() -> None:
    class Empty(SinkSection):
        pass

    with pytest.raises((TypeError, ValidationError), match="abstract"):
        Empty()
