"""Whether a batch would make the hashes that the ledger remembers, asked before anything of it is read or taken away.

Remembered are keys of records, and keys that were erased. An erased key is the hash of what rows held. If its column is
protected in another way by now, or hashed with another secret, no row would have this hash, and what was erased would
come back in silence.

Known limit: a column that a transform makes of a protected one is not known here.
"""

from collections.abc import Callable, Sequence

from batchledger.database.transactions import ranges_as_arrays, read_statement
from batchledger.ledger.schema import transaction
from batchledger.model.batch import Batch
from batchledger.model.errors import ConfigurationError
from batchledger.sinks.staging.key_secret import ReadSecret, know_secret


def require_key_secret(dsn: str, pipeline: str, read_secret: ReadSecret) -> None:
    """Raise ConfigurationError if the ledger's keys are hashed with another secret. Changes nothing."""
    with transaction(dsn, f"compare the secret that keys of {pipeline} are hashed with") as cursor:
        know_secret(cursor, read_secret)


def require_known_forms(dsn: str, find_form: Callable[[Sequence[str]], str], batch: Batch) -> None:
    """Raise ConfigurationError if keys whose records the batch may read again were erased in another form.

    ``find_form`` says how rows hold values of columns from now on.
    """
    with transaction(dsn, f"compare erased keys with {batch.label}") as cursor:
        parameters = {"pipeline": batch.pipeline, **ranges_as_arrays(batch.ranges)}
        cursor.execute(read_statement(__package__, "find_erased_forms"), parameters)
        for columns, form in cursor:
            if form != find_form(columns):
                raise _would_return(batch, columns)


def _would_return(batch: Batch, columns: Sequence[str]) -> ConfigurationError:
    named = ", ".join(columns)
    return ConfigurationError(
        f"{batch.label} may bring rows back that were erased by {named}. Nothing was read.",
        why="The ledger has hashes of what rows held. Since then source.protect has changed for these columns, or the "
        "secret has, so none of these rows would be known.",
        advice="Restore source.protect and the secret. Or erase the same keys again in the new form, and let the "
        "ledger forget the old ones. The documentation says how: guides/erasure",
        batch_id=batch.batch_id,
        pipeline=batch.pipeline,
        subject=columns[0],
    )
