"""Turns records as they were read into rows, records to be set aside, and tombstones to be skipped.

This module judges what a record has besides its value: its own timestamp, and what becomes of it without a value.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from batchledger.adapters.decoding.blocks import BlockDecoder, arrow_schema
from batchledger.adapters.decoding.meaning import LATEST_MICROSECONDS, UnfitError
from batchledger.adapters.decoding.objects import KeyReader, ObjectReader
from batchledger.adapters.decoding.record_schema import QUARANTINE_SCHEMA, RECORD_SCHEMA
from batchledger.model.records.columns import DELETED_COLUMN, PROVENANCE_COLUMNS, Column
from batchledger.model.records.rules import TombstonePolicy

NO_VALUE = "the record has no value (a tombstone)"
OUT_OF_TIME = "the record's own timestamp lies outside of the years 1970 to 9999"

_MOMENT = pa.timestamp("us", "UTC")
_PROVENANCE_TYPES = (pa.string(), pa.int32(), pa.int64(), _MOMENT)
# Kafka's own mark of a record without a timestamp.
_NO_TIMESTAMP = -1


@dataclass(frozen=True)
class Decoded:
    """What became of a batch of records; each is in exactly one part.

    ``rows`` have the schema of the decoder; ``set_aside`` has ``QUARANTINE_SCHEMA``; ``skipped`` are tombstones that
    are only counted, with the columns of the batch.
    """

    rows: Sequence[pa.RecordBatch]
    set_aside: pa.RecordBatch | None
    skipped: pa.RecordBatch | None


@dataclass(frozen=True)
class RecordDecoder:
    """Decodes batches of records, with the columns of ``quarantine.RECORD_SCHEMA``; pickled to the executors.

    ``key`` names the columns that a tombstone takes from the record's key, if tombstones delete.
    """

    columns: tuple[Column, ...]
    tombstones: TombstonePolicy = TombstonePolicy.QUARANTINE
    key: tuple[str, ...] = ()

    @cached_property
    def schema(self) -> pa.Schema:
        """The fields of a row: the declared columns, the record's place, and whether it deletes its key."""
        fields = [*arrow_schema(self.columns), *zip(PROVENANCE_COLUMNS, _PROVENANCE_TYPES, strict=True)]
        if self.tombstones is TombstonePolicy.DELETE:
            fields.append((DELETED_COLUMN, pa.bool_()))
        return pa.schema(fields)

    def decode(self, records: pa.RecordBatch) -> Decoded:
        """Return what becomes of the records: rows, in their order as far as they decode in blocks."""
        is_out_of_time = _is_out_of_time(records["timestamp_ms"])
        values = records["value"]
        if is_out_of_time.any():
            values = pc.if_else(pa.array(is_out_of_time), pa.scalar(None, pa.binary()), values)
        decoded, is_sure = self._blocks.decode(values)
        rows = []
        if decoded.num_rows:
            sure = records if is_sure.all() else records.filter(pa.array(is_sure))
            rows.append(self._join(decoded.columns, sure, np.zeros(sure.num_rows, bool)))
        if is_sure.all():
            return Decoded(rows, None, None)
        left = np.flatnonzero(~is_sure)
        return self._decode_each(records.take(pa.array(left)), is_out_of_time[left], rows)

    def _decode_each(self, records: pa.RecordBatch, is_out_of_time: np.ndarray, rows: list[pa.RecordBatch]) -> Decoded:
        values, errors, good, skipped = [], [], [], []
        for place, (value, is_late) in enumerate(zip(records["value"], is_out_of_time, strict=True)):
            if is_late:
                errors.append((place, OUT_OF_TIME))
                continue
            if not value.is_valid and self.tombstones is TombstonePolicy.SKIP:
                skipped.append(place)
                continue
            try:
                values.append(self._read(value.as_py(), records["key"][place]))
                good.append(place)
            except UnfitError as error:
                errors.append((place, str(error)))
        if good:
            kept = records.take(pa.array(good))
            by_column = list(zip(*values, strict=True)) or [()] * len(self.columns)
            columns = [pa.array(each, self.schema.field(place).type) for place, each in enumerate(by_column)]
            rows.append(self._join(columns, kept, kept["value"].is_null().to_numpy(zero_copy_only=False)))
        return Decoded(rows, _set_aside(records, errors), records.take(pa.array(skipped)) if skipped else None)

    def _read(self, value: bytes | None, key: pa.Scalar) -> Sequence[Any]:
        """Return a value a column. Raises UnfitError."""
        if value is not None:
            return self._objects.read(value)
        match self.tombstones:
            case TombstonePolicy.KEEP:
                return [None] * len(self.columns)
            case TombstonePolicy.DELETE:
                return self._keys.read(key.as_py())
            case _:
                raise UnfitError(NO_VALUE)

    def _join(self, columns: Sequence[pa.Array], records: pa.RecordBatch, is_deleted: np.ndarray) -> pa.RecordBatch:
        """Return decoded columns beside the places of their records."""
        places = [records[name.removeprefix("_")] for name in PROVENANCE_COLUMNS[:3]]
        deleted = [pa.array(is_deleted)] if self.tombstones is TombstonePolicy.DELETE else []
        return pa.RecordBatch.from_arrays(
            [*columns, *places, _moments(records["timestamp_ms"]), *deleted], schema=self.schema
        )

    @cached_property
    def _blocks(self) -> BlockDecoder:
        return BlockDecoder(self.columns)

    @cached_property
    def _objects(self) -> ObjectReader:
        return ObjectReader(self.columns)

    @cached_property
    def _keys(self) -> KeyReader:
        return KeyReader(self.columns, self.key)


def _is_out_of_time(timestamps_ms: pa.Array) -> np.ndarray:
    # -1 is a record without a timestamp.
    is_known = pc.and_(
        pc.greater_equal(timestamps_ms, -1),
        pc.less_equal(timestamps_ms, LATEST_MICROSECONDS // 1000),
    )
    found: np.ndarray = ~pc.fill_null(is_known, fill_value=True).to_numpy(zero_copy_only=False)
    return found


def _moments(timestamps_ms: pa.Array) -> pa.Array:
    is_none = pc.equal(timestamps_ms, _NO_TIMESTAMP)
    known = pc.if_else(is_none, pa.scalar(None, pa.int64()), timestamps_ms)
    return pc.multiply(known, 1000).cast(_MOMENT)


def _set_aside(records: pa.RecordBatch, errors: Sequence[tuple[int, str]]) -> pa.RecordBatch | None:
    if not errors:
        return None
    bad = records.take(pa.array([place for place, _ in errors]))
    columns = [bad[name] for name in RECORD_SCHEMA.names[:-1]] + [pc.fill_null(bad["headers"], "[]")]
    return pa.RecordBatch.from_arrays([*columns, pa.array([why for _, why in errors])], schema=QUARANTINE_SCHEMA)
