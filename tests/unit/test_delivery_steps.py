"""The steps of a publication, for every mode and what the sink can do: the table that the docs show."""

from pathlib import Path

import pytest

from batchledger.lifecycle.delivery_steps import DeliveryStep, confirm, describe_delivery, plan_delivery
from batchledger.model.batch import DeliveryMode

PAGE = Path(__file__).parents[2] / "docs" / "concepts" / "life-of-a-batch.md"
HEADS = ("delivery", "a table of the ledger's database", "a sink that commits by itself")
STEPS = {
    "`exactly_once`": (
        "positions, rows, numbers",
        "announce; then positions, rows, numbers, commit of the sink",
    ),
    "`at_least_once`": (
        "rows; then positions, numbers",
        "rows, commit of the sink; then positions, numbers",
    ),
    "`at_most_once`": (
        "try the rows, positions; then rows, numbers",
        "try the rows, positions; then rows, numbers, commit of the sink",
    ),
    "any, if it takes offsets over": (
        "withdraw, positions, rows, numbers",
        "announce; then withdraw, positions, rows, numbers, commit of the sink",
    ),
}
CONFIRMED = {
    False: "positions, confirm the rows, numbers",
    True: "withdraw, positions, confirm the rows, numbers",
}


def describe(mode: DeliveryMode, *, takes_over: bool = False) -> tuple[str, ...]:
    return tuple(
        describe_delivery(plan_delivery(mode, takes_over=takes_over, shares_transaction=shares))
        for shares in (True, False)
    )


@pytest.mark.parametrize("mode", DeliveryMode)
def test_mode_and_what_the_sink_can_do_make_the_steps(mode: DeliveryMode) -> None:
    assert describe(mode) == STEPS[f"`{mode}`"]


@pytest.mark.parametrize("mode", DeliveryMode)
def test_batch_that_takes_offsets_over_is_one_commit_in_every_mode(mode: DeliveryMode) -> None:
    assert describe(mode, takes_over=True) == STEPS["any, if it takes offsets over"]


@pytest.mark.parametrize("takes_over", [False, True])
def test_what_the_sink_has_committed_is_confirmed_and_not_written(takes_over: bool) -> None:
    *_, last = plan_delivery(DeliveryMode.EXACTLY_ONCE, takes_over=takes_over, shares_transaction=False)
    assert describe_delivery([confirm(last)]) == CONFIRMED[takes_over]


@pytest.mark.parametrize("mode", DeliveryMode)
@pytest.mark.parametrize("takes_over", [False, True])
@pytest.mark.parametrize("shares", [False, True])
def test_rows_and_positions_come_once_and_the_sink_commits_last(
    mode: DeliveryMode, takes_over: bool, shares: bool
) -> None:
    commits = plan_delivery(mode, takes_over=takes_over, shares_transaction=shares)
    steps = [step for commit in commits for step in commit]
    assert len(set(steps)) == len(steps)
    assert {DeliveryStep.ROWS, DeliveryStep.POSITIONS, DeliveryStep.NUMBERS} <= set(steps)
    assert (DeliveryStep.COMMIT_SINK not in steps) == shares
    for commit in commits:
        assert (DeliveryStep.ROWS in commit and not shares) == (commit[-1] is DeliveryStep.COMMIT_SINK)
        assert DeliveryStep.COMMIT_SINK not in commit[:-1]


def test_page_shows_the_same_table() -> None:
    rows = [HEADS, ("---",) * 3, *((head, *told) for head, told in STEPS.items())]
    table = "\n".join(f"| {' | '.join(row)} |" for row in rows)
    page = PAGE.read_text()
    assert table.replace("| --- | --- | --- |", "|---|---|---|") in page
    assert all(f"*{told}*" in page.replace("\n", " ") for told in CONFIRMED.values())
