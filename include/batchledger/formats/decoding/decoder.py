"""Turns records as they were read into rows, records to be set aside, and tombstones to be skipped.

This module judges what a record has besides its value: its own timestamp, and what becomes of it without a value.
"""

from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from batchledger.formats.arrow_types import arrow_schema, mark_hashed
from batchledger.formats.decoding.blocks import BlockDecoder
from batchledger.formats.decoding.meaning import LATEST_MICROSECONDS, UnfitError
from batchledger.formats.decoding.objects import KeyReader, ObjectReader
from batchledger.formats.decoding.outer import OuterReader
from batchledger.formats.decoding.protecting import NO_PROTECTION, Protector
from batchledger.formats.decoding.record_schema import QUARANTINE_SCHEMA, RECORD_SCHEMA
from batchledger.formats.decoding.registered import FindSchema, RegisteredDecoder
from batchledger.formats.decoding.rest import KeepingBlocks, RestReader
from batchledger.model.records.columns import DELETED_COLUMN, PROVENANCE_COLUMNS, REST, Column
from batchledger.model.records.outer import NO_OUTER, OuterColumns
from batchledger.model.records.rules import TombstonePolicy, UnknownFieldPolicy
from batchledger.model.records.unknown_fields import Place, Sighting, write_name

NO_KEY = "the record has no value, and its key has no value for a key column"
NO_VALUE = "the record has no value (a tombstone)"
OUT_OF_TIME = "the record's own timestamp lies outside of the years 1970 to 9999"

_MOMENT = pa.timestamp("us", "UTC")
_PROVENANCE_TYPES = (pa.string(), pa.int32(), pa.int64(), _MOMENT)
# Kafka's own mark of a record without a timestamp.
_NO_TIMESTAMP = -1
_RECORDS_GROUPED = 1_024


@dataclass(frozen=True)
class Decoded:
    """What became of a batch of records; each is in exactly one part.

    ``rows`` have the schema of the decoder; ``set_aside`` has ``QUARANTINE_SCHEMA``; ``skipped`` are tombstones that
    are only counted, with the columns of the batch. ``strange`` are the records of rows that may have unknown fields;
    ``undeclared`` are names of fields that records of rows surely have.
    """

    rows: Sequence[pa.RecordBatch]
    set_aside: pa.RecordBatch | None = None
    skipped: pa.RecordBatch | None = None
    strange: Sequence[pa.RecordBatch] = ()
    undeclared: Sequence[tuple[AbstractSet[str], Sighting]] = ()


@dataclass(frozen=True)
class RecordDecoder:
    """Decodes batches of records, with the columns of ``quarantine.RECORD_SCHEMA``; pickled to the executors.

    ``columns`` come from the value, ``outer`` ones from key and headers. ``key`` names the columns that a tombstone
    takes from the record's key, if tombstones delete. Values are JSON, unless they are ``registered``: then they name
    the schema that they were written with. So do ``registered_keys``. ``protector`` hashes, masks and drops columns of
    rows, whichever way these were decoded.
    """

    columns: tuple[Column, ...]
    tombstones: TombstonePolicy = TombstonePolicy.QUARANTINE
    key: tuple[str, ...] = ()
    unknown_fields: UnknownFieldPolicy = UnknownFieldPolicy.IGNORE
    outer: OuterColumns = NO_OUTER
    registered: RegisteredDecoder | None = None
    registered_keys: RegisteredDecoder | None = None
    protector: Protector = NO_PROTECTION

    def with_schemas(self, find_schema: FindSchema) -> "RecordDecoder":
        """Return the decoder that looks the schemas of records up there, except one that is known already."""
        value, key = (
            each if each is None or each.only_schema else replace(each, find_schema=find_schema)
            for each in (self.registered, self.registered_keys)
        )
        return replace(self, registered=value, registered_keys=key)

    @property
    def declared(self) -> tuple[Column, ...]:
        """The columns of rows: those that a pipeline file declares, and the one of the fields that it does not."""
        return self.protector.keep(self._decoded)

    @property
    def _decoded(self) -> tuple[Column, ...]:
        return (*self.columns, *self.outer.columns, *self._kept)

    @property
    def _kept(self) -> tuple[Column, ...]:
        return (REST,) if self.unknown_fields is UnknownFieldPolicy.KEEP else ()

    @cached_property
    def schema(self) -> pa.Schema:
        """The fields of a row: the declared columns, the record's place, and whether it deletes its key."""
        fields = [*arrow_schema(self.declared), *zip(PROVENANCE_COLUMNS, _PROVENANCE_TYPES, strict=True)]
        if self.tombstones is TombstonePolicy.DELETE:
            fields.append((DELETED_COLUMN, pa.bool_()))
        return mark_hashed(pa.schema(fields), self.protector.hashed)

    def prepare(self, records: pa.RecordBatch) -> None:
        """Look up and compile the schemas of the records, so that ``decode`` waits for no service. Raises its errors.

        Any part of the records may be decoded then.
        """
        for decoder, name in ((self.registered, "value"), (self.registered_keys, "key")):
            if decoder is not None:
                decoder.prepare(records[name], records["headers"])

    def decode(self, records: pa.RecordBatch) -> Decoded:
        """Return what becomes of the records: rows, in their order as far as they decode in blocks."""
        if not self.outer.columns:
            return self._decode(records)
        columns, errors = self._outer.read(records)
        if self.tombstones is TombstonePolicy.DELETE:
            errors = {**self._refuse_keyless(records, columns), **errors}
        # Whatever is left out of the batch from here on takes its columns along.
        wider = pa.RecordBatch.from_arrays([*records.columns, *columns], schema=self._wider_schema)
        if not errors:
            return self._decode(wider)
        is_unfit = np.zeros(records.num_rows, bool)
        is_unfit[list(errors)] = True
        decoded = self._decode(wider.filter(pa.array(~is_unfit)))
        unfit = refuse_records(records, sorted(errors.items()))
        parts = [each for each in (decoded.set_aside, unfit) if each is not None]
        return replace(decoded, set_aside=pa.concat_batches(parts))

    def _refuse_keyless(self, records: pa.RecordBatch, columns: Sequence[pa.Array]) -> Mapping[int, str]:
        """Return why tombstones that are to delete a key from their own key columns have none."""
        own = [column for column, each in zip(columns, self.outer.columns, strict=True) if each.name in self.key]
        found = records["value"].is_null().to_numpy(zero_copy_only=False)
        lacks = np.logical_or.reduce([each.is_null().to_numpy(zero_copy_only=False) for each in own] or [~found])
        return dict.fromkeys(np.flatnonzero(found & lacks).tolist(), NO_KEY)

    def _decode(self, records: pa.RecordBatch) -> Decoded:
        is_out_of_time = _is_out_of_time(records["timestamp_ms"])
        values = records["value"]
        if is_out_of_time.any():
            values = pc.if_else(pa.array(is_out_of_time), pa.scalar(None, pa.binary()), values)
        if self.registered is not None:
            return self._decode_registered(self.registered, records, values, is_out_of_time)
        decoded, is_sure, may_have_unknown = self._blocks.decode(values)
        rows, strange = [], []
        if decoded.num_rows:
            sure = records if is_sure.all() else records.filter(pa.array(is_sure))
            rows.append(self._join(decoded.columns, sure, np.zeros(sure.num_rows, bool)))
            if may_have_unknown.any():
                strange.append(sure.filter(pa.array(may_have_unknown)))
        if is_sure.all():
            return Decoded(rows, strange=strange)
        left = np.flatnonzero(~is_sure)
        others = self._decode_each(records.take(pa.array(left)), is_out_of_time[left])
        return replace(others, rows=[*rows, *others.rows], strange=[*strange, *others.strange])

    def _decode_registered(
        self, decoder: RegisteredDecoder, records: pa.RecordBatch, values: pa.BinaryArray, is_out_of_time: np.ndarray
    ) -> Decoded:
        found = decoder.decode(values, records["headers"])
        rows = []
        if found.rows.num_rows:
            kept = records.filter(pa.array(found.is_decoded))
            rows.append(self._join(found.rows.columns, kept, np.zeros(kept.num_rows, bool)))
        undeclared = [
            (names, Sighting(len(places), _find_first(records, places.tolist())))
            for names, places in found.undeclared
            if self.unknown_fields.counts and len(places)
        ]
        without = np.flatnonzero(values.is_null().to_numpy(zero_copy_only=False))
        others = self._decode_each(records.take(pa.array(without)), is_out_of_time[without])
        unfit = refuse_records(records, sorted(found.errors.items()))
        parts = [each for each in (unfit, others.set_aside) if each is not None]
        return replace(
            others,
            rows=[*rows, *others.rows],
            set_aside=pa.concat_batches(parts) if parts else None,
            undeclared=undeclared,
        )

    def find_unknown(self, decoded: Decoded) -> Iterator[tuple[AbstractSet[str], Sighting]]:
        """Yield unknown fields, together with the records that became rows and have exactly these."""
        yield from decoded.undeclared
        for part in decoded.strange:
            # Each record may have names of its own.
            for start in range(0, part.num_rows, _RECORDS_GROUPED):
                yield from self._group_unknown(part.slice(start, _RECORDS_GROUPED))

    def _group_unknown(self, records: pa.RecordBatch) -> Iterator[tuple[AbstractSet[str], Sighting]]:
        places_by_names: dict[frozenset[str], list[int]] = {}
        for place, value in enumerate(records["value"].to_pylist()):
            if value is not None:
                places_by_names.setdefault(frozenset(self._objects.find_unknown(value)), []).append(place)
        places_by_names.pop(frozenset(), None)
        for names, places in places_by_names.items():
            yield names, Sighting(len(places), _find_first(records, places))

    def _decode_each(self, records: pa.RecordBatch, is_out_of_time: np.ndarray) -> Decoded:
        rows: list[pa.RecordBatch] = []
        strange: list[pa.RecordBatch] = []
        values, errors, good, skipped = [], [], [], []
        for place, (value, is_late) in enumerate(zip(records["value"], is_out_of_time, strict=True)):
            if is_late:
                errors.append((place, OUT_OF_TIME))
                continue
            if not value.is_valid and self.tombstones is TombstonePolicy.SKIP:
                skipped.append(place)
                continue
            try:
                values.append([*self._read(value.as_py(), records["key"][place]), *self._read_rest(value.as_py())])
                good.append(place)
            except UnfitError as error:
                errors.append((place, str(error)))
        if good:
            kept = records.take(pa.array(good))
            by_column = list(zip(*values, strict=True)) or [()] * len(self.columns)
            types = arrow_schema((*self.columns, *self._kept)).types
            columns = [pa.array(each, type_) for each, type_ in zip(by_column, types, strict=True)]
            rows.append(self._join(columns, kept, kept["value"].is_null().to_numpy(zero_copy_only=False)))
            if self.unknown_fields.counts and self.registered is None and not self._kept:
                strange.append(kept)
        skipped_records = records.take(pa.array(skipped)) if skipped else None
        return Decoded(rows, refuse_records(records, errors), skipped_records, strange)

    def _read(self, value: bytes | None, key: pa.Scalar) -> Sequence[Any]:
        """Return a value a column. Raises UnfitError."""
        if value is not None:
            read = self._objects.read(value)
            if self.unknown_fields is UnknownFieldPolicy.QUARANTINE:
                self._refuse_unknown(value)
            return read
        match self.tombstones:
            case TombstonePolicy.KEEP:
                return [None] * len(self.columns)
            case TombstonePolicy.DELETE if self._keys.columns_of_key:
                return self._keys.read(key.as_py())
            case TombstonePolicy.DELETE:
                return [None] * len(self.columns)
            case _:
                raise UnfitError(NO_VALUE)

    def _read_rest(self, value: bytes | None) -> Sequence[str | None]:
        """Return what is kept of the undeclared fields, for the columns that it is kept in. Raises UnfitError."""
        return [None if value is None else self._rest.read(value) for _ in self._kept]

    def _refuse_unknown(self, value: bytes) -> None:
        unknown = self._objects.find_unknown(value)
        if unknown:
            raise UnfitError(f"field {min(map(write_name, unknown))} is not declared")

    def _join(self, columns: Sequence[pa.Array], records: pa.RecordBatch, is_deleted: np.ndarray) -> pa.RecordBatch:
        """Return decoded columns, protected, beside the places of their records: every row is made here."""
        places = [records[name.removeprefix("_")] for name in PROVENANCE_COLUMNS[:3]]
        deleted = [pa.array(is_deleted)] if self.tombstones is TombstonePolicy.DELETE else []
        outer = records.columns[len(RECORD_SCHEMA) :]
        own, rest = columns[: len(self.columns)], columns[len(self.columns) :]
        kept = self.protector.protect(self._decoded, [*own, *outer, *rest])
        return pa.RecordBatch.from_arrays(
            [*kept, *places, _moments(records["timestamp_ms"]), *deleted], schema=self.schema
        )

    @cached_property
    def _blocks(self) -> BlockDecoder | KeepingBlocks:
        blocks = BlockDecoder(self.columns, self.unknown_fields)
        return KeepingBlocks(blocks, self._rest) if self._kept else blocks

    @cached_property
    def _rest(self) -> RestReader:
        return RestReader(self.columns)

    @cached_property
    def _outer(self) -> OuterReader:
        return OuterReader(self.outer, self.registered_keys)

    @cached_property
    def _wider_schema(self) -> pa.Schema:
        return pa.schema([*RECORD_SCHEMA, *(field.with_name(f"column {field.name}") for field in self._outer.schema)])

    @cached_property
    def _objects(self) -> ObjectReader:
        return ObjectReader(self.columns)

    @cached_property
    def _keys(self) -> KeyReader:
        return KeyReader(self.columns, self.key)


def _find_first(records: pa.RecordBatch, places: Sequence[int]) -> Place:
    """Return where the first of these records lies, by topic, partition and offset."""
    found = records.select(["topic", "partition", "offset"]).take(pa.array(places))
    (first,) = pc.select_k_unstable(found, 1, [(name, "ascending") for name in found.schema.names]).to_pylist()
    return found["topic"][first].as_py(), found["partition"][first].as_py(), found["offset"][first].as_py()


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


def refuse_records(records: pa.RecordBatch, errors: Sequence[tuple[int, str]]) -> pa.RecordBatch | None:
    """Return records as they are set aside, by their places in the batch and why; None without any."""
    if not errors:
        return None
    bad = records.take(pa.array([place for place, _ in errors]))
    columns = [bad[name] for name in RECORD_SCHEMA.names[:-1]] + [pc.fill_null(bad["headers"], "[]")]
    return pa.RecordBatch.from_arrays([*columns, pa.array([why for _, why in errors])], schema=QUARANTINE_SCHEMA)
