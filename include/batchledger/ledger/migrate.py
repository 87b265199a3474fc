"""Bring the ledger's schema up to date: one SQL file a release. Harmless to repeat or to race."""

from pathlib import Path

from batchledger.database.sessions import Connection, connect
from batchledger.database.transactions import translate_errors
from batchledger.ledger.rekeying import adopt_secret
from batchledger.ledger.schema import NEWEST_MIGRATION, OWNERS_PATH, RELEASES, saying_who_may, unknown_schema

_SCRIPTS = Path(__file__).parent / "migrations"
_PREPARE = """
select pg_advisory_xact_lock(hashtext('batchledger.migrate'));
create schema if not exists batchledger;
create table if not exists batchledger.migration (
    version_num varchar(32) not null constraint migration_pkc primary key)"""


def migrate(dsn: str, secret: bytes | None = None) -> tuple[str | None, str]:
    """Apply every migration that is missing, in one transaction; return the numbers before and after.

    If the ledger has no key yet, it hashes all that come with ``secret``. Raises ServiceUnavailableError when the
    database does not answer. Raises ConfigurationError when the ledger is at a migration that is not here, of a newer
    version or of a checkout between two releases: there is no way back (S19). Raises it also when the ledger's keys are
    hashed with another secret, after migrating.
    """
    with (
        saying_who_may(),
        translate_errors("migrate the ledger"),
        connect(dsn, search_path=OWNERS_PATH, lock_timeout="0") as connection,
    ):
        before = _apply_missing(connection)
    if secret is not None:
        adopt_secret(dsn, secret)
    return before, NEWEST_MIGRATION


def _apply_missing(connection: Connection) -> str | None:
    """Look first: a ledger that is up to date, or of a newer version, needs neither rights nor a lock."""
    if _read_number(connection) == NEWEST_MIGRATION:
        return NEWEST_MIGRATION
    connection.execute(_PREPARE)
    before = _read_number(connection)
    for number, version in RELEASES.items():
        if before is None or before < number:
            connection.execute((_SCRIPTS / f"{version}.sql").read_bytes())
    if before is None:
        connection.execute("insert into batchledger.migration values (%s)", [NEWEST_MIGRATION])
    elif before != NEWEST_MIGRATION:
        connection.execute("update batchledger.migration set version_num = %s", [NEWEST_MIGRATION])
    return before


def _read_number(connection: Connection) -> str | None:
    """Return the ledger's number; None if it has none yet."""
    if connection.execute("select to_regclass('batchledger.migration')").fetchone() == (None,):
        return None
    found = connection.execute("select version_num from batchledger.migration").fetchone()
    number = None if found is None else str(found[0])
    if number is not None and number not in RELEASES:
        raise unknown_schema(number)
    return number
