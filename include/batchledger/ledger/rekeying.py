"""Lets a ledger hash its keys with the secret of the deployment, from one transaction on.

The hash with the secret is made of the hash without it (``tables.under_secret``). So keys that are hashed already are
hashed once more, and none of them has to be known. A second secret would have to be kept beside the first for ever,
because keys are not there to be hashed anew: it is refused.

Each transaction that hashes keys holds a lock of ``key_secret`` until it ends, by reading it. So runs need not stop:
the change waits for their transactions, and they wait for it.
"""

import hmac
from collections.abc import Mapping
from datetime import datetime

from psycopg import sql

from batchledger.ledger.rows import Cursor
from batchledger.ledger.schema import owners_transaction, snapshot
from batchledger.model.hashing import fingerprint_of, other_secret
from batchledger.sinks.staging.key_secret import write_pads
from batchledger.sinks.staging.tables import under_secret

_TABLES = ("message_key", "deleted_key", "duplicate", "sequence", "erased_key")


def rekey(dsn: str, secret: bytes) -> Mapping[str, int] | None:
    """Hash all keys of the ledger with the secret, in one transaction; return how many, by table.

    Returns None if the ledger has this secret already. Raises ConfigurationError if it has another one, or if the login
    is not the owner of the ledger.
    """
    with owners_transaction(dsn, "hash the keys of the ledger with the secret") as cursor:
        if not _is_new(cursor, secret):
            return None
        cursor.execute("insert into batchledger.key_secret (fingerprint) values (%s)", [fingerprint_of(secret)])
        write_pads(cursor, secret)
        wrapped = under_secret(sql.Identifier("key_hash"))
        count_by_table = {}
        # A hidden row would keep its hash: with this, PostgreSQL says so.
        cursor.execute("set local row_security = off")
        for table in _TABLES:
            statement = "update batchledger.{} set key_hash = {} where key_hash is not null"
            cursor.execute(sql.SQL(statement).format(sql.Identifier(table), wrapped))
            count_by_table[table] = cursor.rowcount
        return count_by_table


def adopt_secret(dsn: str, secret: bytes) -> None:
    """Let a ledger that has neither a key nor a secret hash all keys with this one. One with keys stays as it is.

    Raises ConfigurationError if the ledger has another secret.
    """
    with snapshot(dsn, "look for keys in the ledger") as cursor:
        # A forgotten key leaves its duplicate, without the hash.
        query = sql.SQL("exists (select from batchledger.{} where key_hash is not null)")
        tables = [query.format(sql.Identifier(each)) for each in _TABLES]
        cursor.execute(
            sql.SQL("select (select fingerprint from batchledger.key_secret), {}").format(sql.SQL(" or ").join(tables))
        )
        ((fingerprint, has_keys),) = cursor.fetchall()
    if fingerprint is not None and not hmac.compare_digest(fingerprint, fingerprint_of(secret)):
        raise other_secret(
            "The keys of this ledger are hashed with another secret. Its tables are up to date.",
            why="With this one, runs that hash keys are refused.",
        )
    if fingerprint is None and not has_keys:
        # A key that came meanwhile is hashed once more, as all are.
        rekey(dsn, secret)


def find_use(dsn: str) -> tuple[str, datetime]:
    """Return which login has let the ledger use its secret, and when. The ledger has one."""
    with snapshot(dsn, "look who has hashed the keys of the ledger with the secret") as cursor:
        cursor.execute("select used_by, used_since from batchledger.key_secret")
        ((used_by, used_since),) = cursor.fetchall()
        return used_by, used_since


def _is_new(cursor: Cursor, secret: bytes) -> bool:
    """Whether the ledger has no secret yet. No other transaction can hash keys until this one ends."""
    cursor.execute("lock table batchledger.key_secret in access exclusive mode")
    cursor.execute("select fingerprint from batchledger.key_secret")
    for (fingerprint,) in cursor:
        if not hmac.compare_digest(fingerprint, fingerprint_of(secret)):
            raise other_secret(
                "The keys of this ledger are hashed with another secret already. Nothing was changed.",
                why="The ledger has hashes, and not the keys: they cannot be hashed anew.",
            )
        return False
    return True
