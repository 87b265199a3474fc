"""Who has looked at payloads: recorded before anything is shown, and listed.

One event a request. The database writes the role of the session itself and refuses to change or remove a row. A reader
who may not add the event is refused the payloads.
"""

from collections.abc import Sequence

import psycopg

from batchledger.database.transactions import read_statement
from batchledger.ledger.schema import transaction
from batchledger.model.actors import Actor, PayloadLook, cover_places
from batchledger.model.errors import ConfigurationError
from batchledger.model.offsets import TopicPartition


def record_look(
    dsn: str,
    pipeline: str,
    actor: Actor,
    places: Sequence[tuple[TopicPartition, int]],
    *,
    batch_id: int | None = None,
    errors: int = 0,
) -> None:
    """Record and commit that the records at these places, and whole texts of errors, are about to be shown.

    Nothing to show is no event.

    Raises ConfigurationError if the user of the connection may not record it, and what ``transaction`` raises. The
    caller shows nothing then.
    """
    if not places and not errors:
        return
    parameters = {
        "pipeline": pipeline,
        "batch_id": batch_id,
        "records": len(places),
        "ranges": [str(each) for each in cover_places(places)],
        "errors": errors,
        "looked_by": actor.name,
        "uid": actor.uid,
        "host": actor.host,
    }
    with transaction(dsn, f"record the look at payloads of {pipeline}") as cursor:
        try:
            cursor.execute(read_statement(__package__, "insert_look"), parameters)
        except (psycopg.errors.InsufficientPrivilege, psycopg.errors.ReadOnlySqlTransaction) as error:
            raise ConfigurationError(
                f"The payloads of {pipeline} are not shown: the look at them could not be recorded.",
                why=f"The warehouse database says: {error.diag.message_primary}.",
                advice="Let the user of the warehouse connection write this event to the primary: "
                f'grant insert on batchledger.payload_look to "{cursor.connection.info.user}"',
                pipeline=pipeline,
            ) from error


def list_looks(dsn: str, pipeline: str, limit: int) -> list[PayloadLook]:
    """Return who has looked at payloads of a pipeline, the newest first."""
    with transaction(dsn, f"list who has looked at payloads of {pipeline}") as cursor:
        cursor.execute(read_statement(__package__, "list_looks"), {"pipeline": pipeline, "limit": limit})
        return [
            PayloadLook(look_id, name, batch_id, records, ranges, errors, Actor(*actor), looked_at)
            for look_id, name, batch_id, records, ranges, errors, looked_at, *actor in cursor
        ]
