"""The secret of the deployment that columns and keys are hashed with: the password of an Airflow connection."""

from batchledger.model.errors import ConnectionMissingError
from batchledger.settings.connections import KEYS, hashing_secret, load_connection


def read_key_secret(asked_by: str = "The keys of the ledger are hashed with a secret") -> bytes:
    """Return the secret. Raises ConfigurationError, also if the connection is not defined; ``asked_by`` needs it."""
    return hashing_secret(load_connection(KEYS, asked_by=asked_by))


def find_key_secret() -> bytes | None:
    """Return the secret, None if the connection is not defined. Raises ConfigurationError if it is too short."""
    try:
        return read_key_secret()
    except ConnectionMissingError:
        return None
