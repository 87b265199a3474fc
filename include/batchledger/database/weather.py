"""What an error of PostgreSQL is about: the weather, a limit that a person has set, or the request itself. Pure.

Weather passes, so the step is tried again. A limit is the same the next time, and says nothing of the rows. Everything
else is a refusal: PostgreSQL would refuse the same again, so a step that hands rows over ends in a blocked batch. A
refusal is the default: a batch that is blocked by mistake waits for a person, who reads why. A step that is tried again
by mistake is tried for ever.

The codes are SQLSTATEs (PostgreSQL 14 to 18, appendix A of its manual).
"""

from collections.abc import Mapping
from enum import StrEnum


class Cause(StrEnum):
    """Who has to do something: only time, the person who set the limit, or the owner of target and records."""

    WEATHER = "weather"
    LIMIT = "limit"
    REFUSAL = "refusal"


CONNECTION_CLASS = "08"
"""The connection failed; a pooler that has lost its server, or waits for it too long, says 08P01."""
WEATHER: Mapping[str, str] = {
    "25006": "the transaction is read-only: after a failover it reached a replica, or a full disk made the server so",
    "25P03": "the process was paused inside a transaction, which was ended for it",
    "40000": "the transaction was rolled back for what others did at the same time",
    "40001": "two transactions could not be put in an order",
    "40003": "whether a statement was completed is unknown",
    "40P01": "two transactions waited for each other",
    "53000": "something that the server needs is used up",
    "53100": "the disk is full",
    "53300": "all connections are taken",
    "55P03": "a lock was waited for too long",
    "57P01": "the server is shut down, or a person has ended the session",
    "57P02": "another session has crashed, and the server starts again",
    "57P03": "the server is starting, recovering or going down",
    "57P05": "the session was idle for too long",
    "58000": "the machine of the server failed",
    "58030": "the machine of the server could not read or write",
    "HV00N": "the server behind a foreign table does not answer",
}
LIMITS: Mapping[str, str] = {
    "25P04": "transaction_timeout: a transaction that needs longer is ended each time",
    "53200": "memory, or the table of locks (max_locks_per_transaction): what needs as much again ends again",
    "53400": "a limit of the configuration, such as temp_file_limit",
    "57014": "statement_timeout, or a person: the code does not say which, and nothing here sets that timeout",
}


def find_cause(sqlstate: str | None, *, is_raised: bool = False) -> Cause:
    """Return what an error with that code is about; None is an error without a code, because the connection was lost.

    ``is_raised``: a function has raised it by itself, as with PL/pgSQL's ``raise``. It may carry any code, also the one
    of a shutdown. Its author meant the rows, so it is a refusal.
    """
    if sqlstate is None:
        return Cause.WEATHER
    if is_raised:
        return Cause.REFUSAL
    if sqlstate in WEATHER or sqlstate.startswith(CONNECTION_CLASS):
        return Cause.WEATHER
    return Cause.LIMIT if sqlstate in LIMITS else Cause.REFUSAL
