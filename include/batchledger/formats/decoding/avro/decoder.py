"""Decodes Avro values, whose writer's schema is known, into Arrow columns; the promise is docs/reference/avro.md.

Many values are read side by side. A value that is not surely right that way is read again by the reference, which is
strict and says why it refuses it. A recursive schema is left to the reference altogether.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
from typing_extensions import override

from batchledger.formats.arrow_types import arrow_schema
from batchledger.formats.decoding.avro import schema as avro
from batchledger.formats.decoding.avro.lanes import Bytes, Lanes, Scanned
from batchledger.formats.decoding.avro.projection import AvroPlan, ReferenceReader, plan_columns
from batchledger.formats.decoding.avro.scanning import Scanner
from batchledger.formats.decoding.avro.settling import Settler
from batchledger.formats.decoding.avro.texts import make_rest_reader
from batchledger.formats.decoding.decoded import keep_rest, read_singly
from batchledger.model.records.columns import REST, Column

NO_DATUM = "the record has no value"


@dataclass(frozen=True)
class AvroDecoder:
    """Decodes values that are one datum each, without a frame; pickled to the executors.

    ``schema_text`` is the writer's schema. ``references`` are full names and schemas of the named types that it uses,
    each after those that it uses itself. The last column may be ``REST``: the fields that no other one declares. Raises
    AvroSchemaError if a field can never become its column.
    """

    schema_text: str
    references: tuple[tuple[str, str], ...]
    columns: tuple[Column, ...]

    def __post_init__(self) -> None:
        # So that a schema that does not fit is refused before a record is read.
        _ = self._plan

    @override
    def __reduce__(self) -> tuple[Any, ...]:
        # What is kept in between consists of functions, which do not pickle.
        return type(self), (self.schema_text, self.references, self.columns)

    def decode(self, values: pa.BinaryArray) -> tuple[pa.RecordBatch, np.ndarray, Mapping[int, str]]:
        """Return the rows of the records that decode, in their order; which records these are; why others do not.

        Example: three values, the second cut off, give two rows, ``[True, False, True]`` and a reason by 1.
        """
        data = read_singly(*self._decode_side_by_side(values), values, self._reference.read)
        if self._read_rest is not None:
            data = keep_rest(data, values, np.flatnonzero(data.is_decoded).tolist(), self._read_rest)
        nulls = np.flatnonzero(values.is_null().to_numpy(zero_copy_only=False))
        return data.rows, data.is_decoded, {**data.errors, **dict.fromkeys(nulls.tolist(), NO_DATUM)}

    def _decode_side_by_side(self, values: pa.BinaryArray) -> tuple[pa.RecordBatch, np.ndarray]:
        size = len(values)
        if self._schema.is_recursive or not size:
            return pa.RecordBatch.from_arrays(
                [pa.array([], each.type) for each in self._arrow], schema=self._arrow
            ), np.zeros(size, bool)
        offsets = np.frombuffer(values.buffers()[1], np.int32, size + 1, 4 * values.offset).astype(np.int64)
        content = np.frombuffer(values.buffers()[2] or b"", np.uint8)[offsets[0] : offsets[-1]]
        source = Bytes(content)
        offsets -= offsets[0]
        lanes = Lanes(source, offsets[:-1], offsets[1:])
        found: dict[int, Scanned] = {}
        Scanner(self._schema).scan_plan(self._plan, lanes, found)
        lanes.doubt(lanes.places != lanes.ends)
        lanes.doubt(values.is_null().to_numpy(zero_copy_only=False))
        settler, each_lane = Settler(self._schema, source, lanes.is_doubtful), np.arange(size)
        columns = [
            settler.settle(found[place], self._types[place], column.type, each_lane)
            if place in found
            else pa.nulls(size, field.type)
            for place, (column, field) in enumerate(zip(self.columns, self._arrow, strict=True))
        ]
        rows = pa.RecordBatch.from_arrays(columns, schema=self._arrow)
        is_decoded = ~lanes.is_doubtful
        return (rows if is_decoded.all() else rows.filter(pa.array(is_decoded))), is_decoded

    @cached_property
    def _schema(self) -> avro.Schema:
        return avro.parse_schema(self.schema_text, self.references)

    @cached_property
    def _plan(self) -> AvroPlan:
        return plan_columns(self._schema, self._own_columns)

    @cached_property
    def _own_columns(self) -> tuple[Column, ...]:
        return tuple(each for each in self.columns if each != REST)

    @cached_property
    def _read_rest(self) -> Callable[[bytes], str | None] | None:
        return make_rest_reader(self._schema, self._own_columns) if REST in self.columns else None

    @cached_property
    def _types(self) -> Mapping[int, avro.Type]:
        return dict(_leaf_types(self._plan))

    @cached_property
    def _reference(self) -> ReferenceReader:
        return ReferenceReader(self._schema, self._plan, len(self.columns))

    @cached_property
    def _arrow(self) -> pa.Schema:
        return arrow_schema(self.columns)


def _leaf_types(plan: AvroPlan) -> list[tuple[int, avro.Type]]:
    found = []
    for field in plan.fields:
        found += [(leaf.place, field.type) for leaf in field.leaves]
        if field.within is not None:
            found += _leaf_types(field.within)
    return found
