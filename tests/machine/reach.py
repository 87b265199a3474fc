"""How often each rule was played and each crash point was hit: a machine that goes nowhere finds nothing."""

from collections.abc import Callable
from functools import wraps
from typing import Any

from hypothesis import stateful
from hypothesis.strategies import SearchStrategy

from batchledger.batch import BatchState, DeliveryMode
from tests.fakes.crash import crash_points
from tests.fakes.ledger import CommitFault

Rule = Callable[..., None]


def rule(**strategies: SearchStrategy[Any]) -> Callable[[Rule], Rule]:
    """Make a rule of hypothesis that its machine counts in ``reached`` under its name."""

    def count(play: Rule) -> Rule:
        @wraps(play)
        def play_counted(machine: Any, **arguments: Any) -> None:
            machine.reached[play.__name__] += 1
            play(machine, **arguments)

        return stateful.rule(**strategies)(play_counted)

    return count


def crash_at(point: str) -> str:
    """What is counted when a process dies at a crash point."""
    return f"crash at {point}"


def reply_lost(moment: CommitFault, commit: int) -> str:
    """What is counted when the connection is lost in the first or second COMMIT of a publication."""
    return f"reply lost {moment.name.lower()} commit {commit}"


def in_state(state: str) -> str:
    """What is counted when a look at the ledger first finds a batch in a state."""
    return f"batch {state}"


def all_to_reach(machine: type[stateful.RuleBasedStateMachine], delivery: DeliveryMode) -> list[str]:
    """Every rule, crash point, lost reply and state of a batch."""
    commits = [1] if delivery is DeliveryMode.EXACTLY_ONCE else [1, 2]
    return [
        *(each.function.__name__ for each in machine.setup_state().rules),
        *map(crash_at, crash_points(delivery)),
        *(reply_lost(moment, commit) for moment in CommitFault for commit in commits),
        *map(in_state, BatchState),
    ]
