"""What a kind of target can do, as a value: the core asks it, never the class of a sink. Pure."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a kind of target can do. The defaults are a table of the ledger's database, which can do everything.

    ``shares_transaction``: its rows move in the ledger's transaction; else it is a ``CommittingSink``.
    """

    shares_transaction: bool = True
