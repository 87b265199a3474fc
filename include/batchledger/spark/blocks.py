"""Many JSON records at once into Arrow columns, where pyarrow's parser surely gives what Spark's gives.

Spark's own decoding, in ``decode``, says what a record means. It parses record by record and costs most of the time of
a batch. Here the values of a block are parsed as one text. A record that either parser might read in another way than
the other is left to Spark: a *doubtful* one. ``tests/integration/test_blocks.py`` compares both on the records of
people and of hypothesis. Knows nothing of Kafka, offsets or tables.

Why one text of n lines that holds n objects holds one object a line: each line begins with ``{`` and ends with ``}``,
and what is between two lines is a newline. Outside of a string ``}`` is never followed by ``{`` within one object, and
inside of a string a newline is refused. So no object crosses a line, and each line has at least one.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pa_json

from batchledger.columns import Column

# A doubtful record is searched for by halves, down to this many.
_FEWEST_RECORDS = 64

# Jackson, which Spark parses with, refuses objects in objects beyond 1,000, numbers of more than 1,000 characters and
# names of more than 50,000; pyarrow's parser does not.
_LONGEST_SURE_BYTES = 50_000
_LONG_BYTES = 900
_MOST_BRACKETS = 900
_LONG_NUMBER = "[0-9]{300}"

# U+0000 cannot be stored. Of numbers that are none, which JSON does not know, each parser has its own idea.
_TELLING_WORDS = (b"\\u0000", b"NaN", b"Inf")
_NO_NUMBER = re.compile(rb"[-:,\[]\s*(?:NaN|Inf)")

_DAY = r"[1-9][0-9]{3}-[0-9]{2}-[0-9]{2}"
_SURE_DATE = f"^{_DAY}$"
# No clock is more than 14 hours from UTC; Spark goes up to 18.
_ZONE = "(Z|[+-](0[0-9]|1[0-4]):[0-5][0-9])"
_SURE_TIMESTAMP = rf"^{_DAY}[T ][0-9]{{2}}:[0-9]{{2}}:[0-9]{{2}}(\.[0-9]{{1,6}})?{_ZONE}?$"

# In its own zone the last day of 9999 may end in the year after, which clients cannot represent.
_LATEST = pa.scalar(datetime.max.replace(tzinfo=UTC), pa.timestamp("us", "UTC"))

_PARSED_AS = {
    "string": pa.string(),
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "byte": pa.int8(),
    "smallint": pa.int16(),
    "short": pa.int16(),
    "int": pa.int32(),
    "integer": pa.int32(),
    "bigint": pa.int64(),
    "long": pa.int64(),
    "double": pa.float64(),
    # Texts are compared with the one form that both understand alike before they become moments.
    "date": pa.string(),
    "timestamp": pa.string(),
}


class _DoubtfulError(Exception):
    """At least one of the records has to be left to Spark."""


@dataclass(frozen=True)
class BlockDecoder:
    """Decodes blocks of JSON values into ``columns``; pickled to the executors."""

    columns: tuple[Column, ...]

    def decode(self, values: pa.BinaryArray) -> tuple[pa.RecordBatch, pa.BooleanArray]:
        """Return the rows of the records that decode for sure, in their order, and which records these are.

        Example: of three values the second of which is not JSON, two rows and ``[true, false, true]``.
        """
        looks_sure = _look_sure(values).to_numpy(zero_copy_only=False)
        pieces, is_sure = self._decode_by_halves(values.filter(pa.array(looks_sure)))
        among_all = looks_sure.copy()
        among_all[looks_sure] = is_sure
        rows = pa.concat_tables([self._schema.empty_table(), *pieces])
        columns = [column.combine_chunks() for column in rows.columns]
        return pa.RecordBatch.from_arrays(columns, schema=self._schema), pa.array(among_all)

    def _decode_by_halves(self, values: pa.BinaryArray) -> tuple[list[pa.Table], np.ndarray]:
        try:
            return [self._decode_whole(values)], np.ones(len(values), bool)
        except (pa.ArrowInvalid, _DoubtfulError):
            if len(values) <= _FEWEST_RECORDS:
                return [], np.zeros(len(values), bool)
        half = len(values) // 2
        first, is_first_sure = self._decode_by_halves(values.slice(0, half))
        second, is_second_sure = self._decode_by_halves(values.slice(half))
        return [*first, *second], np.concatenate([is_first_sure, is_second_sure])

    def _decode_whole(self, values: pa.BinaryArray) -> pa.Table:
        """Return one row a value. Raises pa.ArrowInvalid or _DoubtfulError."""
        if not len(values):
            return self._schema.empty_table()
        values.cast(pa.string())  # which refuses what is not UTF-8
        text = pc.binary_join(pa.ListArray.from_arrays([0, len(values)], values), b"\n")[0].as_buffer()
        if _holds_unsure_words(text.to_pybytes()):
            raise _DoubtfulError
        parsed_as = pa.schema([(column.name, _PARSED_AS[column.type]) for column in self.columns])
        table = pa_json.read_json(
            pa.BufferReader(text),
            read_options=pa_json.ReadOptions(use_threads=False, block_size=len(text) + 1),
            parse_options=pa_json.ParseOptions(explicit_schema=parsed_as, unexpected_field_behavior="ignore"),
        )
        if table.num_rows != len(values):
            raise _DoubtfulError
        columns = [_settle(column, table[column.name]) for column in self.columns]
        return pa.table(columns, schema=self._schema)

    @property
    def _schema(self) -> pa.Schema:
        return pa.schema([(column.name, to_arrow_type(column.type)) for column in self.columns])


def decodes_in_blocks(columns: Sequence[Column]) -> bool:
    """Whether both parsers agree on all of these types: not on ``float``, ``decimal`` and ``binary``."""
    return all(column.type in _PARSED_AS for column in columns)


def to_arrow_type(type_: str) -> pa.DataType:
    """Return the Arrow type in which Spark hands over a column of a declared type."""
    match type_:
        case "timestamp":
            return pa.timestamp("us", "UTC")
        case "date":
            return pa.date32()
        case "float" | "real":
            return pa.float32()
        case "binary":
            return pa.binary()
        case _ if type_.startswith("decimal"):
            precision, scale = type_.removeprefix("decimal(").removesuffix(")").split(",")
            return pa.decimal128(int(precision), int(scale))
        case _:
            return _PARSED_AS[type_]


def _look_sure(values: pa.BinaryArray) -> pa.BooleanArray:
    """Which values look like one object; false for a tombstone, and for what the parsers' limits may part."""
    looks_sure = pc.and_(pc.starts_with(values, b"{"), pc.ends_with(values, b"}"))
    lengths = pc.binary_length(values)
    if (pc.max(lengths).as_py() or 0) > _LONG_BYTES:
        brackets = pc.add(pc.count_substring(values, b"{"), pc.count_substring(values, b"["))
        is_unusual = pc.or_(pc.greater(brackets, _MOST_BRACKETS), pc.match_substring_regex(values, _LONG_NUMBER))
        is_unusual = pc.or_(is_unusual, pc.greater(lengths, _LONGEST_SURE_BYTES))
        looks_sure = pc.and_not(looks_sure, is_unusual)
    return pc.fill_null(looks_sure, fill_value=False)


def _holds_unsure_words(text: bytes) -> bool:
    # A look for one byte is much faster than one for a word.
    found = [word for word in _TELLING_WORDS if text.find(word[:1]) >= 0 and text.find(word) >= 0]
    return _TELLING_WORDS[0] in found or (bool(found) and _NO_NUMBER.search(text) is not None)


def _settle(column: Column, values: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return the values in the column's own type. Raises pa.ArrowInvalid or _DoubtfulError."""
    match column.type:
        case "string":
            # An escaped half of a surrogate pair would have become bytes that are not UTF-8.
            return values.cast(pa.binary()).cast(pa.string())
        case "double":
            numbers = values.to_numpy()
            # Beyond all doubles; and of -0, which Jackson takes for a whole number, so that it loses its sign.
            if (np.isinf(numbers) | (np.signbit(numbers) & (numbers == 0))).any():
                raise _DoubtfulError
            return values
        case "date":
            _require_form(values, _SURE_DATE)
            return values.cast(pa.date32())
        case "timestamp":
            _require_form(values, _SURE_TIMESTAMP)
            # A moment without a zone is of UTC, Spark's session time zone.
            has_zone = pc.match_substring_regex(values, f"{_ZONE}$")
            zoned = pc.if_else(has_zone, values, pc.binary_join_element_wise(values, "Z", ""))
            moments = zoned.cast(to_arrow_type("timestamp"))
            if pc.any(pc.greater(moments, _LATEST)).as_py():
                raise _DoubtfulError
            return moments
        case _:
            return values


def _require_form(values: pa.ChunkedArray, form: str) -> None:
    if pc.all(pc.match_substring_regex(values, form)).as_py() is False:
        raise _DoubtfulError
