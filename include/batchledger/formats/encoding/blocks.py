"""Turns rows into the records of an output topic, many at once: in JSON, with the texts that ``texts`` says.

A value that pyarrow might write in another way is left to ``texts``. Knows nothing of batches, topics or tables.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from batchledger.formats.arrow_types import group, is_array, is_json, reached
from batchledger.formats.encoding.texts import (
    Write,
    make_element_writer,
    make_text_writer,
    make_writer,
    write_date,
    write_moment,
    write_string,
)
from batchledger.model.records.columns import COORDINATE_COLUMNS, DELETED_COLUMN, PROVENANCE_COLUMNS

OUTPUT_SCHEMA = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp_ms", pa.int64()),
        ("key", pa.binary()),
        ("value", pa.binary()),
    ]
)
"""Where the source record lies, its timestamp, and what the output topic gets. Without a value it is a tombstone."""

MOST_BYTES = 16 * 1024 * 1024
"""Blocks of rows whose texts would be larger are divided, so that no array of texts is too long."""
_BYTES_OF_A_TOKEN = 8

_ESCAPED = r'["\\\x00-\x1f]'
# Numbers between these bounds have no exponent, neither here nor there.
_LEAST_PLAIN, _MOST_PLAIN_FLOAT, _MOST_PLAIN_DOUBLE = 1e-4, 1e6, 1e10
# The years 1 to 9999.
_FIRST_DAY, _LAST_DAY = -719_162, 2_932_896
_MICROSECONDS_OF_A_DAY = 86_400_000_000

WriteValues = Callable[[pa.RecordBatch, Sequence[str]], pa.Array]
"""Returns the value of each row, none of them null, with the columns of these names."""


def write_objects(rows: pa.RecordBatch, names: Sequence[str]) -> pa.Array:
    """Return a JSON object for each row."""
    parts: list[pa.Array | str] = []
    for name in names:
        texts = rows[name] if is_json(rows.schema.field(name)) else write_tokens(rows[name])
        parts += [f"{',' if parts else '{'}{write_string(name)}:", pc.fill_null(texts, "null")]
    return pc.binary_join_element_wise(*parts, "}", "") if parts else pa.repeat("{}", rows.num_rows)


@dataclass(frozen=True)
class RecordEncoder:
    """Makes records of rows; pickled to the executors.

    The value has all columns but the provenance columns; ``write_values`` says how they are written. ``key`` names the
    columns of the key: the text of one, the JSON array of several, none if one of them is null.
    """

    key: tuple[str, ...] = ()
    write_values: WriteValues = field(default=write_objects, repr=False)

    def encode(self, rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Yield the records of the rows, in their order, with the columns of ``OUTPUT_SCHEMA``."""
        if rows.num_rows > 1 and _estimate_bytes(rows) > MOST_BYTES:
            half = rows.num_rows // 2
            yield from self.encode(rows.slice(0, half))
            yield from self.encode(rows.slice(half))
        elif rows.num_rows:
            places = [rows[each] for each in COORDINATE_COLUMNS]
            moments = pc.divide(rows[PROVENANCE_COLUMNS[-1]].cast(pa.int64()), 1000)
            columns = [*places, moments, self._encode_keys(rows), self._encode_values(rows)]
            columns = [each.cast(field.type) for each, field in zip(columns, OUTPUT_SCHEMA, strict=True)]
            yield pa.RecordBatch.from_arrays(columns, schema=OUTPUT_SCHEMA)

    def _encode_keys(self, rows: pa.RecordBatch) -> pa.Array:
        match self.key:
            case ():
                return pa.nulls(rows.num_rows, pa.binary())
            case (column,) if rows[column].type in (pa.binary(), pa.large_binary()):
                return rows[column]
            case (column,):
                return _write_texts(rows[column])
            case columns:
                joined = pc.binary_join_element_wise(*(_write_elements(rows[each]) for each in columns), ", ")
                return pc.binary_join_element_wise("[", joined, "]", "")

    def _encode_values(self, rows: pa.RecordBatch) -> pa.Array:
        names = [each for each in rows.schema.names if each not in (*PROVENANCE_COLUMNS, DELETED_COLUMN)]
        values = self.write_values(rows, names)
        if DELETED_COLUMN not in rows.schema.names:
            return values
        is_deleted = pc.fill_null(rows[DELETED_COLUMN], fill_value=False)
        return pc.if_else(is_deleted, pa.scalar(None, values.type), values)


def _estimate_bytes(rows: pa.RecordBatch) -> int:
    """Return about how many bytes the values get: each names all columns, also columns that are null."""
    size_bytes: int = rows.nbytes + sum(map(_estimate_names, rows.schema, rows.columns))
    return size_bytes


def _estimate_names(field: pa.Field, values: pa.Array) -> int:
    """Return about how many bytes are written beside the values: a name and more for each, also for those within."""
    size_bytes = len(values) * (len(field.name) + _BYTES_OF_A_TOKEN)
    if pa.types.is_struct(field.type):
        size_bytes += sum(_estimate_names(each, values.field(place)) for place, each in enumerate(field.type))
    elif pa.types.is_map(field.type):
        size_bytes += _estimate_names(field.type.key_field, values.keys) + _estimate_names(
            field.type.item_field, values.items
        )
    elif is_array(field.type):
        size_bytes += _estimate_names(field.type.value_field, values.values)
    return size_bytes


def write_tokens(values: pa.Array) -> pa.Array:
    """Return JSON tokens, null if a value is."""
    type_ = values.type
    if pa.types.is_struct(type_) or pa.types.is_map(type_) or is_array(type_):
        return _write_nested(values)
    if pa.types.is_string(type_) or pa.types.is_large_string(type_):
        texts = values.cast(pa.string())
        if not _may_need_escapes(texts):
            return _quote(texts)
        return _write_each(_quote(texts), values, pc.match_substring_regex(texts, _ESCAPED), make_writer(type_))
    if pa.types.is_temporal(type_):
        return _quote(_write_times(values, "T", "+00:00"))
    return _write_plain(values, make_writer(type_))


def _write_nested(values: pa.Array) -> pa.Array:
    parts: list[pa.Array | str] = []
    if pa.types.is_struct(values.type):
        for place, field in enumerate(values.type):
            texts = pc.fill_null(write_tokens(values.field(place)), "null")
            parts += [f"{',' if parts else ''}{write_string(field.name)}:", texts]
        parts = ["{", *parts, "}"]
    elif pa.types.is_map(values.type):
        within = write_tokens(reached(values, values.items))
        names = write_tokens(reached(values, values.keys))
        parts = ["{", _join_within(values, pc.binary_join_element_wise(names, pc.fill_null(within, "null"), ":")), "}"]
    else:
        within = pc.fill_null(write_tokens(reached(values, values.values)), "null")
        parts = ["[", _join_within(values, within), "]"]
    # An object without fields has no part that is an array.
    texts = pc.binary_join_element_wise(*parts, pa.repeat("", len(values)), "")
    return pc.if_else(values.is_valid(), texts, pa.scalar(None, pa.string()))


def _join_within(values: pa.Array, texts: pa.Array) -> pa.Array:
    """Return, for each array, the texts of its values with commas between them."""
    return pc.fill_null(pc.binary_join(group(values, texts), ","), "")


def _write_elements(values: pa.Array) -> pa.Array:
    """Return elements of a key, null if a value is."""
    if pa.types.is_floating(values.type):
        # The sum makes 0 of -0. A number that is sure has no exponent.
        return _write_plain(pc.add(values, pa.scalar(0.0, values.type)), make_element_writer(values.type))
    return write_tokens(values)


def _write_texts(values: pa.Array) -> pa.Array:
    """Return the texts that the values have by themselves, null if a value is."""
    if pa.types.is_string(values.type) or pa.types.is_large_string(values.type):
        return values
    if pa.types.is_temporal(values.type):
        return _write_times(values, " ", "+00")
    return _write_plain(values, make_text_writer(values.type))


def _may_need_escapes(texts: pa.Array) -> bool:
    """Whether the bytes hold any that JSON escapes; also if they belong to other values of a longer array."""
    content = texts.buffers()[2]
    found = np.frombuffer(content, np.uint8) if content is not None else np.empty(0, np.uint8)
    return bool(((found < ord(" ")) | (found == ord('"')) | (found == ord("\\"))).any())


def _quote(texts: pa.Array) -> pa.Array:
    return pc.binary_join_element_wise('"', texts, '"', "")


def _write_plain(values: pa.Array, write: Write) -> pa.Array:
    """Write what needs neither quotes nor a form of time; ``write`` writes one that is in doubt."""
    type_ = values.type
    if pa.types.is_binary(type_) or pa.types.is_large_binary(type_):
        return _write_each(pa.nulls(len(values), pa.string()), values, values.is_valid(), write)
    texts = values.cast(pa.string())
    if pa.types.is_decimal(type_):
        return _write_each(texts, values, pc.match_substring(texts, "E"), write)
    if pa.types.is_floating(type_):
        sizes = pc.abs(values)
        most = _MOST_PLAIN_FLOAT if type_ == pa.float32() else _MOST_PLAIN_DOUBLE
        is_small = pc.and_(pc.greater_equal(sizes, _LEAST_PLAIN), pc.less(sizes, most))
        return _write_each(texts, values, pc.invert(pc.or_(is_small, pc.equal(sizes, 0))), write)
    return texts


def _write_times(values: pa.Array, between: str, zone: str) -> pa.Array:
    """Write dates, or moments with ``between`` date and time, and ``zone`` if they have one."""
    is_date = pa.types.is_date(values.type)
    unit = 1 if is_date else _MICROSECONDS_OF_A_DAY
    numbers = (values.cast(pa.int32()) if is_date else values).cast(pa.int64())
    is_sure = pc.and_(pc.greater_equal(numbers, _FIRST_DAY * unit), pc.less(numbers, (_LAST_DAY + 1) * unit))
    sure = pc.if_else(is_sure, numbers, 0)
    if is_date:
        texts, write = sure.cast(pa.int32()).cast(pa.date32()).cast(pa.string()), write_date
    else:
        zone = zone if values.type.tz else ""
        whole = sure.cast(pa.timestamp("us")).cast(pa.string())
        # All six digits of the fraction are there.
        time = pc.utf8_rtrim(pc.utf8_rtrim(pc.utf8_slice_codeunits(whole, 11), "0"), ".")
        texts = pc.binary_join_element_wise(pc.utf8_slice_codeunits(whole, 0, 10), between, time, zone, "")
        write = partial(write_moment, between=between, zone=zone)
    return _write_each(texts, numbers, pc.invert(is_sure), write)


def _write_each(texts: pa.Array, values: pa.Array, is_doubtful: pa.Array, write: Write) -> pa.Array:
    """Return the texts, with the doubtful ones written one by one. A null stays one."""
    is_doubtful = pc.fill_null(is_doubtful, fill_value=False)
    if not is_doubtful.true_count:
        return texts
    written = [write(each) for each in values.filter(is_doubtful).to_pylist()]
    return pc.replace_with_mask(texts, is_doubtful, pa.array(written, pa.string()))
