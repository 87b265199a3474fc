"""A table or view in PostgreSQL, as a role that may only read finds it: its columns, and sessions that end in time."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict

from batchledger.database.sessions import connect
from batchledger.database.transactions import is_right_missing, read_sql, translate_errors
from batchledger.model.datasets import split_table
from batchledger.model.errors import ConfigurationError, ServiceUnavailableError
from batchledger.settings.column_rules import nearest
from batchledger.watching.table import ReadCost, refuse_table


class Described(NamedTuple):
    """What the catalog says: its number, its kind, and whether the role may read all of its columns."""

    number: int
    kind: str
    may_read_all: bool


class PlannedScans(NamedTuple):
    """What a statement will read; ``has_whole``: a whole relation, of which the rows are what a filter leaves."""

    cost: ReadCost
    has_whole: bool


@dataclass(frozen=True)
class Relation:
    """``name`` is the table, with or without its schema. ``advice`` says what makes statements of its reader faster."""

    dsn: str = field(repr=False)
    name: str
    timeout_seconds: float = 600
    advice: str = "Create an index"

    @property
    def identifier(self) -> sql.Identifier:
        """The name as a part of a statement."""
        return sql.Identifier(*self.name.split(".", 1))

    def find_moment(self) -> datetime | None:
        """Return the moment that a replica has reached; None if it is none."""
        with self.session("look at the server") as cursor:
            cursor.execute(read_sql(__package__, "find_replica_moment"))
            ((is_replica, moment),) = cursor.fetchall()
        if is_replica and moment is None:
            raise ServiceUnavailableError(
                f"The replica of {self.name} does not say yet how far it is. Nothing was looked at.",
                advice="Look again when it has replayed a transaction.",
            )
        return moment if is_replica else None

    def describe(self, cursor: psycopg.Cursor[Any]) -> Described:
        """Return what it is. Raises ConfigurationError if it is not there, or shows the role not all of its rows."""
        name = sql.Literal(self.identifier.as_string(cursor))
        cursor.execute(read_sql(__package__, "describe_watched").format(name=name))
        described = cursor.fetchone()
        if described is None:
            cursor.execute(read_sql(__package__, "list_relations"))
            hint = nearest(self.name, [each for (each,) in cursor])
            fault = f"is not there, in database {cursor.connection.info.dbname}"
            raise self.refuse(fault, f"Write its name as schema.table; {hint}")
        number, kind, is_filtered, may_read_all, may_read = described
        if is_filtered:
            raise self.refuse(
                "shows this role only some of its rows, by row security",
                "Rows that a policy hides would count as missing. Log in as a role that sees all rows.",
            )
        if not may_read:
            raise self._refuse_reading()
        return Described(number, kind, may_read_all)

    def explain(self, statement: sql.Composable, values: Mapping[str, Any] | None = None) -> PlannedScans:
        """Return what PostgreSQL plans to read for a statement. Reads no rows."""
        with self.session("estimate the cost") as cursor:
            cursor.execute(sql.Composed([sql.SQL("explain (format json) "), statement]), values)
            ((plan,),) = cursor.fetchall()
        scans = list(_list_scans(plan[0]["Plan"]))
        how = ", ".join(dict.fromkeys(_describe_scan(each) for each, _ in scans))
        is_whole = any(each["Node Type"] == "Seq Scan" for each, _ in scans)
        return PlannedScans(ReadCost(int(sum(rows for _, rows in scans)), how), is_whole)

    def find_type(self, cursor: psycopg.Cursor[Any], number: int, column: str) -> tuple[str, int] | None:
        """Return the type of a column, below domains, and the number of the parts of it; None if it is not there."""
        statement = read_sql(__package__, "describe_part").as_string(cursor).encode()
        cursor.execute(statement, {"relation": number, "column": column})
        found: tuple[str, int] | None = cursor.fetchone()
        return found

    def explain_columns(self, cursor: psycopg.Cursor[Any], number: int, column: str) -> str:
        """Return in words which column of the relation was probably meant."""
        cursor.execute(read_sql(__package__, "list_columns"), [number])
        return nearest(column, [each for (each,) in cursor])

    def _refuse_reading(self) -> ConfigurationError:
        schema, role = split_table(self.name)[0], conninfo_to_dict(self.dsn).get("user", "ROLE")
        statements = f"grant usage on schema {schema} to {role}; grant select on {self.name} to {role};"
        return self.refuse("may not be read", f"Let its owner grant it: {statements}")

    def refuse(self, fault: str, advice: str) -> ConfigurationError:
        """Return the error that says so."""
        return refuse_table(self.name, fault, advice)

    @contextmanager
    def session(self, action: str) -> Iterator[psycopg.Cursor[Any]]:
        """Open a session that only reads, in one state of the table, and whose statements end in time."""
        settings = {
            "statement_timeout": f"{self.timeout_seconds * 1000:.0f}ms",
            "default_transaction_read_only": "on",
        }
        try:
            with (
                translate_errors(f"{action} of {self.name}"),
                connect(self.dsn, **settings) as one,
                one.cursor() as cursor,
            ):
                yield cursor
                one.rollback()
        except ConfigurationError as error:
            cause = error.__cause__
            if isinstance(cause, psycopg.Error) and is_right_missing(cause):
                raise self._refuse_reading() from cause
            if isinstance(cause, psycopg.errors.QueryCanceled):
                raise self.refuse(
                    f"could not be read within {self.timeout_seconds:g} s",
                    f"{self.advice}, let the watch begin later (since), or raise timeout.",
                ) from cause
            raise


def _list_scans(plan: Any, share: float = 1) -> Iterator[tuple[Any, float]]:
    """Yield the steps that read a relation, with its rows: a step of several workers plans the rows of one."""
    workers = plan.get("Workers Planned", 0)
    share *= workers + max(0, 1 - 0.3 * workers) if workers else 1
    if "Relation Name" in plan:
        yield plan, plan["Plan Rows"] * share
    for each in plan.get("Plans", ()):
        yield from _list_scans(each, share)


def _describe_scan(step: Any) -> str:
    """Return in words how a step reads."""
    indexes = [each["Index Name"] for each in (step, *step.get("Plans", ())) if "Index Name" in each]
    where = f"by {indexes[0]}" if indexes else f"of {step['Relation Name']}"
    return f"{step['Node Type'].lower()} {where}"
