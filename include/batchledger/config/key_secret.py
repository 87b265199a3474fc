"""The secret of the deployment that the ledger's keys are hashed with: the password of an Airflow connection."""

from batchledger.config.connections import KEYS, hashing_secret, load_connection
from batchledger.model.errors import ConnectionMissingError


def read_key_secret() -> bytes:
    """Return the secret. Raises ConfigurationError, also if the connection is not defined."""
    return hashing_secret(load_connection(KEYS, asked_by="The keys of the ledger are hashed with a secret"))


def find_key_secret() -> bytes | None:
    """Return the secret, None if the connection is not defined. Raises ConfigurationError if it is too short."""
    try:
        return read_key_secret()
    except ConnectionMissingError:
        return None
