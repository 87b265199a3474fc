"""Which logins travel unencrypted to another machine. Such a connection works, and people hear of it."""

from contextlib import suppress
from itertools import chain

from batchledger.config.named_connections import list_named
from batchledger.config.pipeline_file import find_pipeline_files, read_pipeline_file
from batchledger.model.errors import BatchledgerError
from batchledger.settings.connections import Connection, load_connection
from batchledger.settings.exposure import is_here, list_unencrypted
from batchledger.sinks.kinds import KINDS


def warn_of_exposed() -> list[str]:
    """Return what to know of each connection of the folder's pipelines whose login travels unencrypted, once.

    A file or a connection that is refused adds none: the look at its pipeline says why.
    """
    used: dict[str, None] = {}
    for path in find_pipeline_files():
        with suppress(BatchledgerError):
            # The secret of keys, which fits any type, is sent nowhere.
            named = list_named(read_pipeline_file(path))
            used |= dict.fromkeys(each.connection_id for each in named if each.types)
    found = []
    for connection_id in used:
        # The use of an address that is none says so.
        with suppress(BatchledgerError, ValueError):
            found.append(find_exposure(load_connection(connection_id)))
    return [each for each in found if each]


def find_exposure(connection: Connection) -> str:
    """Return what to know and to do if a login travels unencrypted, else an empty text. Opens nothing.

    A host that is this machine, or a socket, exposes nothing. Raises ConfigurationError, or ValueError if an address is
    none.
    """
    found = (list_unencrypted(connection), *(each.list_unencrypted(connection) for each in KINDS))
    for host, advice in chain(*found):
        if not is_here(host):
            return f"Connection {connection.connection_id!r} sends a login to {host} unencrypted. {advice}"
    return ""
