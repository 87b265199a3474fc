"""What a kind of target can do, as a value: the core asks it, and refuses the rest in the words of the kind. Pure."""

from dataclasses import dataclass

from batchledger.model.errors import DecisionRefusedError


@dataclass(frozen=True, slots=True)
class Inability:
    """Why a kind cannot do something, and what to do instead. ``what`` may hold ``{target}`` and ``{pipeline}``."""

    what: str
    why: str = ""
    advice: str = ""


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a kind of target can do. A kind states each of these: nothing is trusted to it by a default.

    ``shares_transaction``: its rows move in the ledger's transaction; else it is a ``CommittingSink``. ``no_emptying``
    says why a rewind cannot empty it, ``no_erasing`` why the rows of a key cannot be erased; None: it can.
    """

    shares_transaction: bool
    no_emptying: Inability | None
    no_erasing: Inability | None


def require_able(inability: Inability | None, target: str, pipeline: str) -> None:
    """Raise DecisionRefusedError if there is a reason why a target cannot do what a person has ordered."""
    if inability is not None:
        raise DecisionRefusedError(
            inability.what.format(target=target, pipeline=pipeline),
            why=inability.why,
            advice=inability.advice,
            pipeline=pipeline,
            subject=target,
        )
