"""How often each rule was played and each crash point was hit: a machine that goes nowhere finds nothing."""

from collections.abc import Callable
from functools import wraps
from typing import Any

from hypothesis import stateful
from hypothesis.strategies import SearchStrategy

from batchledger.model.batch import BatchState, DeliveryMode, Lane
from tests.fakes.ledger import CommitFault
from tests.machine.processes import points

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


AHEAD = "replay published ahead of the position"
BEFORE_ORIGIN = "replay published before the origin"
REPAIRED = "records that were lost or repeated made whole again"
EXPIRED_WHEN_ASKED = "replay refused because of expiry"
EXPIRED_WHEN_STORED = "stored replay refused because of expiry"


def crash_at(lane: Lane, point: str) -> str:
    """What is counted when a process dies at a crash point."""
    return f"{lane} crash at {point}"


def reply_lost(lane: Lane, moment: CommitFault, commit: int) -> str:
    """What is counted when the connection is lost in the first or second COMMIT of a publication."""
    return f"{lane} reply lost {moment.name.lower()} commit {commit}"


def in_state(lane: Lane, state: str) -> str:
    """What is counted when a look at the ledger first finds a batch in a state."""
    return f"{lane} batch {state}"


def took_over(lane: Lane, owner: Lane) -> str:
    """What is counted when a batch of a lane has published offsets that a batch of a lane owned."""
    return f"{lane} took over from {owner}"


def all_to_reach(
    machine: type[stateful.RuleBasedStateMachine], delivery: DeliveryMode, *, is_foreign: bool
) -> list[str]:
    """Every rule, crash point, lost reply and state of a batch, and what replays meet."""
    states = [each for each in BatchState if is_foreign or each is not BatchState.COMMITTING]
    commits = [1] if delivery is DeliveryMode.EXACTLY_ONCE else [1, 2]
    return [
        *(each.function.__name__ for each in machine.setup_state().rules),
        *(crash_at(lane, point) for lane in Lane for point in points(delivery, lane, is_foreign=is_foreign)),
        *(reply_lost(Lane.LIVE, moment, commit) for moment in CommitFault for commit in commits),
        *(reply_lost(Lane.REPLAY, moment, 1) for moment in CommitFault),
        *(in_state(lane, state) for lane in Lane for state in states),
        *(took_over(lane, Lane.REPLAY) for lane in Lane),
        took_over(Lane.REPLAY, Lane.LIVE),
        crash_at(Lane.LIVE, "rows_withdrawn"),
        AHEAD,
        BEFORE_ORIGIN,
        EXPIRED_WHEN_ASKED,
        EXPIRED_WHEN_STORED,
        *([] if delivery is DeliveryMode.EXACTLY_ONCE else [REPAIRED]),
    ]
