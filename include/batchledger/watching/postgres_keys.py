"""Asks a table in PostgreSQL for the rows of keys: a role that may read the columns is enough.

Keys travel as parameters, as texts that the types of the table's columns read: what is equal is what the table says.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from psycopg import sql

from batchledger.database.transactions import read_sql
from batchledger.model.records.types import UUID_FORM
from batchledger.watching.keyed import PORTION_RECORDS, KeyAnswer, KeyRule
from batchledger.watching.relation import Relation
from batchledger.watching.table import ReadCost, require_bound

_BITS = {"int2": 15, "int4": 31, "int8": 63}
_TEXTS = frozenset({"text", "varchar", "bpchar"})
_MOMENTS = frozenset({"timestamp", "timestamptz"})
_WHOLE, _DECIMAL = r"^-?[0-9]{1,1000}$", r"^-?[0-9]{1,1000}(\.[0-9]{1,1000})?$"
_LARGEST = str(2**63 - 1)


@dataclass(frozen=True)
class PostgresKeys:
    """Answers for a table in PostgreSQL, as ``rule`` says. Raises what a ``WatchedTable`` raises."""

    relation: Relation
    rule: KeyRule
    max_rows: int | None = None

    def write(self, name: str, values: pa.Array) -> pa.StringArray:
        """Return the texts that the column of the table reads as these values; null also for what it cannot hold."""
        type_name = self._types[name]
        texts = _write(type_name, values)
        if texts is None:
            raise self.relation.refuse(
                f"has {name} of type {type_name}, which is not compared with records whose {name} is {values.type}",
                "Declare the column in source.schema as the table has it: a whole number, decimal, string, boolean, "
                "uuid, date or timestamp.",
            )
        return texts

    def estimate(self, texts: Sequence[pa.StringArray], keys: int) -> ReadCost:
        """Return what asking for so many keys will cost, in portions such as this one. Reads no rows."""
        planned = self.relation.explain(self._statement, self._bind(texts)).cost
        portions = -(-keys // PORTION_RECORDS)
        how = planned.how + (f", {portions:,} times" if portions > 1 else "")
        advice = "Create an index on the key, let the watch begin later (since), or raise max_rows."
        return require_bound(
            self.relation.name, ReadCost(max(keys, portions * planned.rows), how), self.max_rows, advice
        )

    def ask(self, texts: Sequence[pa.StringArray]) -> KeyAnswer:
        """Return what the table says of keys, given as texts, one array for each of ``KeyRule.needed``."""
        asked = len(texts[0])
        rows, agrees = np.ones(asked, np.int64), np.ones(asked, bool)
        with self.relation.session("ask for rows by key") as cursor:
            cursor.execute(self._statement, self._bind(texts))
            for place, found, are_right in cursor:
                rows[place - 1], agrees[place - 1] = found, are_right
        return KeyAnswer(rows, agrees)

    def _bind(self, texts: Sequence[pa.StringArray]) -> Mapping[str, str]:
        return {f"v{place}": _write_array(each) for place, each in enumerate(texts)}

    @cached_property
    def _statement(self) -> sql.Composed:
        names = self.rule.needed
        asked = {name: sql.Identifier("k", f"v{place}") for place, name in enumerate(names)}
        own = {name: sql.Identifier("c", name) for name in names}
        arrays = (
            sql.SQL("{}::{}[]").format(sql.Placeholder(f"v{place}"), sql.Identifier("pg_catalog", self._types[name]))
            for place, name in enumerate(names)
        )
        same = "{} >= {}" if self.rule.version else "{} is not distinct from {}"
        agreed = [sql.SQL(same).format(own[name], asked[name]) for name in self.rule.compared]
        return read_sql(__package__, "ask_keys").format(
            arrays=sql.SQL(", ").join(arrays),
            names=sql.SQL(", ").join(sql.Identifier(f"v{place}") for place in range(len(names))),
            table=self.relation.identifier,
            equal=sql.SQL(" and ").join(sql.SQL("{} = {}").format(own[name], asked[name]) for name in self.rule.key),
            first=own[self.rule.key[0]],
            agrees=sql.SQL(" and ").join(agreed) if agreed else sql.SQL("true"),
        )

    @cached_property
    def _types(self) -> Mapping[str, str]:
        """The types of the columns by name."""
        with self.relation.session("look at its columns") as cursor:
            described = self.relation.describe(cursor)
            types = {}
            for name in self.rule.needed:
                found = self.relation.find_type(cursor, described.number, name)
                if found is None:
                    hint = self.relation.explain_columns(cursor, described.number, name)
                    raise self.relation.refuse(
                        f"has no column {name}",
                        f"Call the column of source.schema as the table does: path.to.field as COLUMN TYPE; {hint}",
                    )
                types[name] = found[0]
        return types


def _write(type_name: str, values: pa.Array) -> pa.StringArray | None:  # noqa: PLR0911 -- one a type
    """Return texts that a type of PostgreSQL reads, null for what it cannot hold; None if they are not comparable."""
    kind = values.type
    is_text, is_whole = pa.types.is_string(kind), pa.types.is_integer(kind)
    if type_name in _BITS and (is_whole or is_text):
        numbers = (_keep_small(_keep(values, _WHOLE)) if is_text else values).cast(pa.int64())
        limit = 2 ** _BITS[type_name]
        fits = pc.and_(pc.greater_equal(numbers, -limit), pc.less_equal(numbers, limit - 1))
        return pc.if_else(fits, numbers, pa.scalar(None, pa.int64())).cast(pa.string())
    if type_name in _TEXTS and (is_whole or is_text):
        texts = values.cast(pa.string())
        return pc.if_else(pc.match_substring(texts, "\0"), pa.scalar(None, pa.string()), texts)
    # No floats: one number may have two values, so a row that is there would count as missing.
    if type_name == "numeric" and (is_whole or pa.types.is_decimal(kind)):
        return values.cast(pa.string())
    if type_name == "numeric" and is_text:
        return _keep(values, _DECIMAL)
    if type_name == "uuid" and is_text:
        return _keep(values, f"^{UUID_FORM}$")
    if (
        (type_name == "bool" and pa.types.is_boolean(kind))
        or (type_name == "date" and pa.types.is_date(kind))
        or (type_name in _MOMENTS and pa.types.is_timestamp(kind))
    ):
        return values.cast(pa.string())
    return None


def _keep(texts: pa.StringArray, pattern: str) -> pa.StringArray:
    """Return the texts of a form, null for others."""
    return pc.if_else(pc.match_substring_regex(texts, pattern), texts, pa.scalar(None, pa.string()))


def _keep_small(numbers: pa.StringArray) -> pa.StringArray:
    """Return the whole numbers of 64 bits, null for others."""
    digits = pc.utf8_ltrim(numbers, "-0")
    length = pc.utf8_length(digits)
    fits = pc.or_(
        pc.less(length, len(_LARGEST)),
        pc.and_(pc.equal(length, len(_LARGEST)), pc.less_equal(digits, _LARGEST)),
    )
    return pc.if_else(fits, numbers, pa.scalar(None, pa.string()))


def _write_array(texts: pa.StringArray) -> str:
    """Return the text that PostgreSQL reads as an array of these texts."""
    escaped = pc.replace_substring(pc.replace_substring(texts, "\\", "\\\\"), '"', '\\"')
    quoted = pc.fill_null(pc.binary_join_element_wise('"', escaped, '"', ""), "NULL")
    return f"{{{','.join(quoted.to_pylist())}}}"
