"""Which secret a pipeline hashes columns with: its fingerprint is kept at the first use, and compared ever after."""

from batchledger.ledger.schema import transaction
from batchledger.model.hashing import other_secret


def require_fingerprint(dsn: str, pipeline: str, fingerprint: bytes) -> None:
    """Keep the fingerprint if the pipeline has none. Raises ConfigurationError if it has another one.

    One transaction, harmless to repeat. If two first uses meet, one keeps its fingerprint, and the other compares.
    """
    with transaction(dsn, f"compare the secret that columns of {pipeline} are hashed with") as cursor:
        cursor.execute(
            "update batchledger.pipeline set secret_fingerprint = %s where name = %s and secret_fingerprint is null",
            [fingerprint, pipeline],
        )
        cursor.execute("select secret_fingerprint from batchledger.pipeline where name = %s", [pipeline])
        for (kept,) in cursor:
            if bytes(kept) != fingerprint:
                raise other_secret(
                    f"Connection 'batchledger_keys' has another secret than {pipeline} hashes with. Nothing was read.",
                    why="The same value would have another hash from now on.",
                    pipeline=pipeline,
                )
