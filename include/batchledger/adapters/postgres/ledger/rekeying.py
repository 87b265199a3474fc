"""Lets a ledger hash its keys with the secret of the deployment, from one transaction on.

The hash with the secret is made of the hash without it (``tables.under_secret``). So keys that are hashed already are
hashed once more, and none of them has to be known. A second secret would have to be kept beside the first for ever,
because keys are not there to be hashed anew: it is refused.

Each transaction that hashes keys holds a lock of ``key_secret`` until it ends, by reading it. So runs need not stop:
the change waits for their transactions, and they wait for it.
"""

import hmac
from collections.abc import Mapping

from psycopg import sql

from batchledger.adapters.postgres.ledger.rows import Cursor
from batchledger.adapters.postgres.ledger.schema import snapshot, transaction
from batchledger.adapters.postgres.staging.key_secret import fingerprint_of, write_pads
from batchledger.adapters.postgres.staging.tables import under_secret
from batchledger.model.errors import ConfigurationError

_TABLES = ("message_key", "deleted_key", "duplicate", "sequence", "erased_key")


def rekey(dsn: str, secret: bytes) -> Mapping[str, int] | None:
    """Hash all keys of the ledger with the secret, in one transaction; return how many, by table.

    Returns None if the ledger has this secret already. Raises ConfigurationError if it has another one, or if the login
    is not the owner of the ledger.
    """
    with transaction(dsn, "hash the keys of the ledger with the secret") as cursor:
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
    """Let a ledger that has neither a key nor a secret hash all keys with this one. Others stay as they are."""
    with snapshot(dsn, "look for keys in the ledger") as cursor:
        tables = [sql.SQL("exists (select from batchledger.{})").format(sql.Identifier(each)) for each in _TABLES]
        cursor.execute(
            sql.SQL("select exists (select from batchledger.key_secret) or {}").format(sql.SQL(" or ").join(tables))
        )
        ((is_used,),) = cursor.fetchall()
    if not is_used:
        # A key that came meanwhile is hashed once more, as all are.
        rekey(dsn, secret)


def _is_new(cursor: Cursor, secret: bytes) -> bool:
    """Whether the ledger has no secret yet. No other transaction can hash keys until this one ends."""
    cursor.execute("lock table batchledger.key_secret in access exclusive mode")
    cursor.execute("select fingerprint from batchledger.key_secret")
    for (fingerprint,) in cursor:
        if not hmac.compare_digest(fingerprint, fingerprint_of(secret)):
            raise ConfigurationError(
                "The keys of this ledger are hashed with another secret already. Nothing was changed.",
                why="The ledger has hashes, and not the keys: they cannot be hashed anew.",
                advice="Give the connection batchledger_keys the password that it had.\n"
                "If it is lost or known to others, see the documentation: guides/key-secret",
            )
        return False
    return True
