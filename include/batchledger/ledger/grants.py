"""The rights of a role that runs pipelines: the least that runs need, and for one pipeline a row that keeps it to this.

The policies of the ledger hold a role that ``pipeline_role`` names to its pipelines. A role without a row there is
held by its grants alone. What only people do is not granted: a migration, and emptying a target that others own.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import psycopg
from psycopg import sql

from batchledger.database.transactions import STAGING_SCHEMA
from batchledger.ledger.migrate import migrate
from batchledger.ledger.schema import owners_transaction
from batchledger.model.errors import ConfigurationError
from batchledger.sinks.staging.tables import columns_of

_READ, _ADD = "select", "select, insert"
_CHANGE, _REMOVE = "select, insert, update", "select, insert, update, delete"
# A lock of a row ("for update") needs the right to update it. The right to insert into a whole table is the right to
# choose its ids, too ("overriding system value"): a role could take the next ones of other pipelines. So tables that
# count their rows name the columns that runs write. A role cannot choose the moment of a decision or a look either.
RIGHTS_BY_TABLE: Mapping[str, str] = {
    "added_column": "select, insert (pipeline, name, batch_id)",
    "attempt": _CHANGE,
    "attempt_writer_schema": _ADD,
    "audit_result": _REMOVE,
    "batch": "select, insert (pipeline, lane, state, lag_left_records, planned_by, delivery, request_key, origin, "
    "is_dry_run, published_rows, published_at), update",
    "batch_range": _CHANGE,
    "check_result": _REMOVE,
    "decision": "select, insert (pipeline, batch_id, kind, decided_by, reason, before, after, uid, host, request_id, "
    "requested_order)",
    "deleted_key": _REMOVE,
    "duplicate": _REMOVE,
    "erased_key": _CHANGE,
    "erased_offset": _ADD,
    "incident": "select, insert (pipeline, kind, subject, severity, title, lines, command, batch_id, run, opened_at, "
    "seen_at), update, delete",
    "key_type": _CHANGE,
    "message_key": _REMOVE,
    "migration": _READ,
    "notification": "select, insert (incident_id, channel, event, next_try_at), update, delete",
    "payload_look": "select, insert (pipeline, batch_id, records, ranges, errors, looked_by, uid, host)",
    # Not the count of decisions, which a trigger writes.
    "pipeline": "select, insert (name), "
    "update (target, target_identity, ledger_mark, epoch, pause_id, secret_fingerprint)",
    "pipeline_total": _CHANGE,
    "position": _CHANGE,
    "presence": _REMOVE,
    "quarantine": "select, insert, delete",
    # Triggers of quarantine write it.
    "quarantine_kind": _REMOVE,
    "record_schema": "select, insert (pipeline, fingerprint, definition, first_batch_id, last_batch_id), update",
    "replacement": _ADD,
    "sequence": _REMOVE,
    "watch": _REMOVE,
    "watch_look": "select, insert (watch, looked_at, outcome, document), delete",
    "watch_part": _REMOVE,
    "watch_start": _CHANGE,
    "writer_schema": _ADD,
}
# A member may be without the rights of the other role until it says "set role".
_FIND_UNHELD = """
select (
    select array[u.rolname, case when u.rolsuper then 'a superuser' when u.rolbypassrls then 'exempt by BYPASSRLS'
        else 'the owner of the ledger' end]
    from pg_roles u
    where pg_has_role(r.oid, u.oid, 'member') and (
        u.rolsuper or u.rolbypassrls
        or u.oid in (select relowner from pg_class where relnamespace = 'batchledger'::regnamespace and relrowsecurity))
    order by u.oid <> r.oid, u.rolname
    limit 1)
from pg_roles r
where r.rolname = %s"""
_FIND_KEPT = """
select role, array_agg(pipeline order by pipeline)
from batchledger.pipeline_role
where pg_has_role(%s, to_regrole(quote_ident(role)), 'usage')
group by role
order by role
limit 1"""
_RIGHTS_ON_TARGET = "select, insert, update, delete"


def set_up_ledger(dsn: str, secret: bytes, role: str) -> tuple[str | None, str | None]:
    """Migrate the ledger as its owner, and let a role run all pipelines; return what ``migrate`` returns.

    Raises what ``migrate`` and ``grant_all`` raise.
    """
    moved = migrate(dsn, secret)
    grant_all(dsn, role, is_applied=True)
    return moved


def list_grants(pipeline: str, role: str, database: str, target: tuple[str, str] | None) -> list[sql.Composed]:
    """Return the statements, in their order; ``target`` is schema and name of the table, if the sink is one."""
    name = sql.Identifier(role)
    named = sql.SQL(
        "insert into batchledger.pipeline_role (role, pipeline) values ({}, {}) on conflict do nothing"
    ).format(sql.Literal(role), sql.Literal(pipeline))
    grants = [named, *_list_ledger_grants(role, database)]
    if target is not None:
        grants.append(sql.SQL("grant usage on schema {} to {}").format(sql.Identifier(target[0]), name))
        grants.append(_grant(_RIGHTS_ON_TARGET, target, name))
    return grants


def _list_ledger_grants(role: str, database: str) -> list[sql.Composed]:
    name = sql.Identifier(role)
    return [
        # An audit lists duplicates in a temporary table.
        sql.SQL("grant connect, temporary on database {} to {}").format(sql.Identifier(database), name),
        sql.SQL("grant usage on schema batchledger to {}").format(name),
        sql.SQL("grant usage, create on schema {} to {}").format(sql.Identifier(STAGING_SCHEMA), name),
        *(_grant(rights, ("batchledger", table), name) for table, rights in RIGHTS_BY_TABLE.items()),
    ]


def grant_role(
    dsn: str, pipeline: str, role: str, target: tuple[str, str] | None, *, is_applied: bool
) -> Sequence[str]:
    """Return the statements as texts, and execute them in one transaction if ``is_applied``.

    Raises ConfigurationError if the role is not there or no policy would hold it, and if the table of the sink is not
    there: only its owner could grant rights on it.
    """
    with owners_transaction(dsn, f"grant {role} what the runs of {pipeline} need") as cursor:
        _require_held(cursor, pipeline, role)
        if target is not None and not columns_of(cursor, *target):
            raise ConfigurationError(
                f"Table {'.'.join(target)} of {pipeline} is not there. Nothing was granted.",
                advice=f"Create it, or let the owner of the ledger publish the first batch: batchledger run {pipeline}",
                pipeline=pipeline,
            )
        statements = list_grants(pipeline, role, cursor.connection.info.dbname, target)
        return _execute(cursor, statements, is_applied=is_applied)


def grant_all(dsn: str, role: str, *, is_applied: bool) -> Sequence[str]:
    """Return the statements that let a role run all pipelines of the ledger, and execute them if ``is_applied``.

    Raises ConfigurationError as ``grant_role`` does, and if ``pipeline_role`` keeps the role to some pipelines.
    """
    with owners_transaction(dsn, f"grant {role} what the runs of all pipelines need") as cursor:
        _require_held(cursor, None, role)
        _require_free(cursor, role)
        statements = _list_ledger_grants(role, cursor.connection.info.dbname)
        return _execute(cursor, statements, is_applied=is_applied)


def _require_free(cursor: psycopg.Cursor[Any], role: str) -> None:
    cursor.execute(_FIND_KEPT, [role])
    found = cursor.fetchone()
    if found is not None:
        name, pipelines = found
        claim = "" if name == role else f"is a member of {name}, which "
        raise ConfigurationError(
            f"Policies hold {role}: it {claim}runs {', '.join(pipelines)} alone. Nothing was granted.",
            advice="Name another role, or remove the rows from batchledger.pipeline_role first."
            if name == role
            else f"Name another role, or take the membership away first: revoke {name} from {role}",
        )


def _execute(cursor: psycopg.Cursor[Any], statements: Sequence[sql.Composed], *, is_applied: bool) -> Sequence[str]:
    if is_applied:
        for each in statements:
            cursor.execute(each)
    return [each.as_string(cursor) for each in statements]


def _require_held(cursor: psycopg.Cursor[Any], pipeline: str | None, role: str) -> None:
    cursor.execute(_FIND_UNHELD, [role])
    found = cursor.fetchone()
    if found is None:
        raise ConfigurationError(
            f"PostgreSQL has no role {role}. Nothing was granted.",
            advice="Name a role that is there, or create one: create role NAME login",
            pipeline=pipeline,
        )
    (unheld,) = found
    if unheld is not None:
        name, what = unheld
        claim = f"is {what}" if name == role else f"is a member of {name}, which is {what}"
        raise ConfigurationError(
            f"No policy holds {role}: it {claim}. Nothing was granted.",
            advice="Name a role that is none of these and a member of none, or create one: create role NAME login",
            pipeline=pipeline,
        )


def _grant(rights: str, table: tuple[str, str], role: sql.Identifier) -> sql.Composed:
    return sql.SQL(f"grant {rights} on {{}} to {{}}").format(sql.Identifier(*table), role)
