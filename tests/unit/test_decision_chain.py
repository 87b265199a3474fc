"""The proof that decisions stand as they were recorded: each change is found at the first place that does not fit."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from hashlib import sha256

import pytest

from batchledger.proof.decision_chain import ChainedDecision, DecisionChain, find_break

Decisions = list[ChainedDecision]


def record(contents: Sequence[bytes]) -> Decisions:
    """The decisions 11, 12 and so on, as the ledger would have recorded them."""
    recorded: Decisions = []
    for number, content in enumerate(contents, 1):
        before = recorded[-1].hash if recorded else b""
        recorded.append(ChainedDecision(number, 10 + number, sha256(before + content).digest(), content))
    return recorded


GOOD = record([b"pause", b"resume", b"rewind"])


def change(decisions: Decisions) -> Decisions:
    return [decisions[0], replace(decisions[1], content=b"accept"), decisions[2]]


def change_with_its_hash(decisions: Decisions) -> Decisions:
    return [*record([b"pause", b"accept"]), decisions[2]]


def remove_the_first(decisions: Decisions) -> Decisions:
    return decisions[1:]


def remove_the_second(decisions: Decisions) -> Decisions:
    return [decisions[0], decisions[2]]


def remove_the_newest(decisions: Decisions) -> Decisions:
    return decisions[:2]


def remove_all(decisions: Decisions) -> Decisions:
    return decisions[:0]


def exchange(decisions: Decisions) -> Decisions:
    first, second, third = decisions
    return [replace(second, number=1), replace(first, number=2), third]


def repeat(decisions: Decisions) -> Decisions:
    return [*decisions[:2], decisions[1], decisions[2]]


def add(decisions: Decisions) -> Decisions:
    return record([*(each.content for each in decisions), b"forged"])


def test_decisions_that_stand_as_they_were_recorded_hold_and_end_in_the_newest_hash() -> None:
    chain = DecisionChain(3, GOOD)
    assert (find_break(chain), chain.end) == (None, GOOD[2].hash.hex())
    assert (find_break(DecisionChain()), DecisionChain().end) == (None, "")


@pytest.mark.parametrize(
    ("tamper", "where", "said"),
    [
        (change, "decision_id 12", "its hash does not fit"),
        (change_with_its_hash, "decision_id 13", "its hash does not fit"),
        (remove_the_first, "decision_id 12", "its number is 2 and not 1"),
        (remove_the_second, "decision_id 13", "its number is 3 and not 2"),
        (remove_the_newest, "the newest decisions", "3 decisions were recorded, and 2 are there"),
        (remove_all, "the newest decisions", "3 decisions were recorded, and 0 are there"),
        (exchange, "decision_id 12", "its hash does not fit"),
        (repeat, "decision_id 12", "its number is 2 and not 3"),
        (add, "the newest decisions", "3 decisions were recorded, and 4 are there"),
    ],
)
def test_change_is_found_at_the_first_place_that_does_not_fit(
    tamper: Callable[[Decisions], Decisions], where: str, said: str
) -> None:
    found = find_break(DecisionChain(3, tamper(GOOD)))
    assert found is not None
    assert (found[0], said in found[1]) == (where, True)


def test_chain_that_was_made_anew_holds_and_ends_in_another_hash() -> None:
    """What the proof does not show, and what shows it."""
    forged = DecisionChain(3, record([b"pause", b"accept", b"rewind"]))
    assert find_break(forged) is None
    assert forged.end != DecisionChain(3, GOOD).end
