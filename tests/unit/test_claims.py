"""Whose a target is: what a sink finds, held against what every pipeline has published to."""

import pytest

from batchledger.model.batch import Target
from batchledger.model.claims import TargetClaim
from batchledger.model.errors import TargetChangedError

NAME, HERE = "shop.orders", "cluster/shop/"
OURS, THEIRS, NEW = (Target(NAME, f"{HERE}{number}") for number in (1, 2, 3))
RESTORED = Target(NAME, "other-cluster/shop/1")


def claim(identity: str | None, home: str = HERE) -> TargetClaim:
    return TargetClaim(NAME, identity, home)


@pytest.mark.parametrize(
    ("found", "published"),
    [
        (claim(NEW.identity), {}),
        (claim(None), {}),
        (claim(OURS.identity), {"orders": OURS}),
        (claim(OURS.identity), {"orders": OURS, "other": THEIRS}),
        (claim(NEW.identity), {"other": THEIRS}),
        # A topic, a lake: known by identity alone.
        (claim(NEW.identity, home=""), {"other": RESTORED}),
    ],
)
def test_target_that_nobody_else_has_published_to_is_granted(found: TargetClaim, published: dict[str, Target]) -> None:
    found.require_granted("orders", published)


@pytest.mark.parametrize(
    ("found", "published", "owner"),
    [
        (claim(THEIRS.identity), {"other": THEIRS}, "other"),
        (claim(THEIRS.identity), {"orders": OURS, "other": THEIRS}, "other"),
        # Theirs was restored together with the ledger, and waits for its adoption under its name.
        (claim(NEW.identity), {"other": RESTORED}, "other"),
        (claim(NEW.identity), {"orders": OURS}, None),
        (claim(None), {"orders": OURS}, None),
        (claim(NEW.identity, home=""), {"orders": OURS}, None),
    ],
)
def test_s111_target_of_another_one_or_other_than_before_is_refused(
    found: TargetClaim, published: dict[str, Target], owner: str | None
) -> None:
    with pytest.raises(TargetChangedError) as refused:
        found.require_granted("orders", published)
    assert (refused.value.pipeline, refused.value.owner) == ("orders", owner)


def test_rows_are_published_only_to_a_target_that_is_there() -> None:
    assert claim(NEW.identity).require_there("orders", {}) == NEW
    with pytest.raises(TargetChangedError, match="is gone"):
        claim(None).require_there("orders", {})
