"""Renames a pipeline within the transaction of a decision: all that the ledger has of it belongs to the new name.

The catalog of PostgreSQL says which tables know a pipeline by its name: those with a column ``pipeline``. So a table
that comes later is renamed with the others. Decisions and looks at payloads are only added, for every login. The owner
of the ledger lifts this within the transaction. A decision keeps the name under which it was made: its hash is of it.

Runs wait for the transaction as for a publication. It writes each row of the pipeline once, so it takes as long as its
history is large.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
from psycopg import sql
from psycopg.types.json import Jsonb

from batchledger.database.transactions import read_statement
from batchledger.ledger.incidents import end_incidents
from batchledger.ledger.rows import (
    Cursor,
    await_publications,
    insert_decision,
    list_decisions,
    load_batch,
    require_current_name,
)
from batchledger.model.batch import Decided, Decision, DecisionKind, DecisionRecord
from batchledger.model.pauses import never_planned
from batchledger.model.renames import name_given_up, name_taken, renaming, require_idle


def rename_pipeline(cursor: Cursor, pipeline: str, to: str, decision: Decision) -> Decided:
    """Rename the pipeline within a transaction of the owner of the ledger; see the Decisions port."""
    # A hidden row would keep its name: with this, PostgreSQL says so.
    cursor.execute("set local row_security = off")
    await_publications(cursor)
    cursor.execute("select 1 from batchledger.pipeline where name = %s for update", [pipeline])
    if cursor.fetchone() is None:
        return Decided(_find_rename(cursor, pipeline, to), is_new=False)
    _require_free(cursor, pipeline, to)
    _require_idle(cursor, pipeline, to)
    _move(cursor, pipeline, to)
    return Decided(insert_decision(cursor, to, DecisionKind.RENAME, decision, renaming(pipeline, to)))


def _find_rename(cursor: Cursor, pipeline: str, to: str) -> DecisionRecord:
    """Return the newest decision, if it is this rename: the order was repeated. Otherwise there is no such pipeline."""
    effect = renaming(pipeline, to)
    for each in list_decisions(cursor, pipeline=to, kind=DecisionKind.RENAME, limit=1):
        if (each.before, each.after) == (effect.before, effect.after):
            return each
    require_current_name(cursor, pipeline)
    raise never_planned(pipeline)


def _require_free(cursor: Cursor, pipeline: str, to: str) -> None:
    cursor.execute("select 1 from batchledger.pipeline where name = %s", [to])
    if cursor.fetchone() is not None:
        raise name_taken(pipeline, to)
    cursor.execute("select name from batchledger.pipeline where %s = any (former_names) and name <> %s", [to, pipeline])
    for (owner,) in cursor:
        raise name_given_up(pipeline, to, owner)


def _require_idle(cursor: Cursor, pipeline: str, to: str) -> None:
    """No run opens a batch afterwards: the pipeline is locked, as planning locks it."""
    cursor.execute(
        "select batch_id from batchledger.batch where pipeline = %s and state not in ('published', 'discarded') "
        "order by batch_id",
        [pipeline],
    )
    require_idle(pipeline, to, [load_batch(cursor, batch_id) for (batch_id,) in cursor.fetchall()])


def _move(cursor: Cursor, pipeline: str, to: str) -> None:
    """Give all rows of the pipeline the new name, its own row first: the others refer to it."""
    names = {"pipeline": pipeline, "to": to}
    # A look at a file that already had the new name may have found something, and a role may have been granted it.
    cursor.execute("select clock_timestamp()")
    ((now,),) = cursor.fetchall()
    end_incidents(cursor, to, "the pipeline has a history under this name now", now)
    cursor.execute(read_statement(__package__, "drop_granted_twice"), names)
    cursor.execute(read_statement(__package__, "note_former_name"), names)
    cursor.execute("select target_identity from batchledger.pipeline where name = %s", [pipeline])
    ((identity,),) = cursor.fetchall()
    # Every column, also one that comes later. No two pipelines have a target, not even for a moment.
    changed = Jsonb({"name": to, "target_identity": None})
    try:
        cursor.execute(read_statement(__package__, "copy_pipeline"), {"pipeline": pipeline, "changed": changed})
    except psycopg.errors.UniqueViolation as error:
        raise name_taken(pipeline, to) from error
    cursor.execute(read_statement(__package__, "list_named_tables"))
    # Those that are only added come last: other pipelines wait for them until the transaction ends.
    for table, is_only_added, keeps_name in cursor.fetchall():
        kept = sql.SQL(", recorded_as = coalesce(recorded_as, pipeline)" if keeps_name else "")
        statement = sql.SQL("update batchledger.{} set pipeline = %(to)s{} where pipeline = %(pipeline)s")
        with _lifting(cursor, sql.Identifier("batchledger", table), is_lifted=is_only_added):
            cursor.execute(statement.format(sql.Identifier(table), kept), names)
    cursor.execute("delete from batchledger.pipeline where name = %s", [pipeline])
    cursor.execute("update batchledger.pipeline set target_identity = %s where name = %s", [identity, to])


@contextmanager
def _lifting(cursor: Cursor, table: sql.Identifier, *, is_lifted: bool) -> Iterator[None]:
    """Let rows be changed that are only added. No other transaction sees this: its lock is held to the end."""
    if not is_lifted:
        yield
        return
    cursor.execute(sql.SQL("alter table {} disable trigger user").format(table))
    yield
    cursor.execute(sql.SQL("alter table {} enable trigger user").format(table))
