"""The secret of the deployment under which keys are hashed, as one transaction knows it (HMAC-SHA-256, RFC 2104).

The ledger holds the secret's fingerprint alone. A ledger without one hashes keys without a secret. With one,
``know_secret`` compares it in each transaction that hashes keys. So a lost or another secret is an error, and never a
key that the ledger does not know again.

PostgreSQL computes HMAC from the two padded blocks of the secret. They reach it by COPY, into a temporary table that
ends with the transaction: a server may log statements and their parameters, and it logs no rows of a COPY. What runs
later in the session, such as SQL of checks, does not find them. Known limit: a trigger of the target does.
"""

import hmac
from collections.abc import Callable
from typing import Any

import psycopg
from psycopg import sql

from batchledger.model.errors import ConfigurationError
from batchledger.model.hashing import fingerprint_of, other_secret, pads_of
from batchledger.sinks.staging.tables import PADS

ReadSecret = Callable[[], bytes]
"""Returns the secret of the deployment. Raises ConfigurationError if there is none."""


def no_secret() -> bytes:
    """Refuse: this process was given no secret."""
    raise ConfigurationError("This ledger hashes keys with a secret, and none was given. Nothing was written.")


def know_secret(cursor: psycopg.Cursor[Any], read_secret: ReadSecret) -> None:
    """Let the expressions of ``tables.hash_of`` work until the transaction ends. Harmless to repeat.

    Until then no ``rekey`` can change how keys are hashed: it waits for the lock that reading the fingerprint takes.
    Raises ConfigurationError if the ledger was hashed with another secret.
    """
    cursor.execute(
        "select to_regclass(%s) is not null, (select fingerprint from batchledger.key_secret)", [PADS.as_string(cursor)]
    )
    ((is_known, fingerprint),) = cursor.fetchall()
    if is_known:
        return
    secret = None if fingerprint is None else read_secret()
    if secret is not None and not hmac.compare_digest(fingerprint_of(secret), fingerprint):
        raise other_secret(
            "The keys of this ledger are hashed with another secret. Nothing was written.",
            why="With this one, no key would be known again, and duplicates would be published.",
        )
    write_pads(cursor, secret)


def write_pads(cursor: psycopg.Cursor[Any], secret: bytes | None) -> None:
    """Make the temporary table of the padded blocks; it is empty if there is no secret."""
    create = sql.SQL("create temporary table {} (inner_pad bytea, outer_pad bytea) on commit drop")
    cursor.execute(create.format(PADS))
    if secret is not None:
        with cursor.copy(sql.SQL("copy {} from stdin").format(PADS)) as rows:
            rows.write_row(pads_of(secret))
