"""Turns records as they were read into rows, records to be set aside, and tombstones to be skipped.

This module judges what a record has besides its value: its own timestamp, and what becomes of it without a value.
"""

from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from batchledger.formats.arrow_types import arrow_schema, mark_hashed
from batchledger.formats.decoding.documents import DocumentDecoder
from batchledger.formats.decoding.meaning import LATEST_MICROSECONDS, UnfitError
from batchledger.formats.decoding.objects import KeyReader
from batchledger.formats.decoding.outer import OuterReader
from batchledger.formats.decoding.registered import FindSchema, RegisteredDecoder
from batchledger.formats.records import QUARANTINE_SCHEMA, RECORD_SCHEMA
from batchledger.model.hashing import make_hash
from batchledger.model.records.columns import DELETED_COLUMN, PROVENANCE_COLUMNS, REST, Column
from batchledger.model.records.outer import NO_OUTER, OuterColumns
from batchledger.model.records.protection import (
    MOST_HIDDEN,
    STARS,
    ColumnProtection,
    Protections,
    without_dropped,
)
from batchledger.model.records.rules import TombstonePolicy, UnknownFieldPolicy
from batchledger.model.records.unknown_fields import Place, Sighting

NO_KEY = "the record has no value, and its key has no value for a key column"
NO_VALUE = "the record has no value (a tombstone)"
OUT_OF_TIME = "the record's own timestamp lies outside of the years 1970 to 9999"

_MOMENT = pa.timestamp("us", "UTC")
_PROVENANCE_TYPES = (pa.string(), pa.int32(), pa.int64(), _MOMENT)
# Kafka's own mark of a record without a timestamp.
_NO_TIMESTAMP = -1
_SHOWN_OF_MASKED = 4


@dataclass(frozen=True)
class Protector:
    """Hashes, masks and drops columns of rows that were just decoded; nothing else of a row is seen before.

    Nulls stay null. Hashing is one call a value: no library hashes a whole column with a secret. Pickled to the
    executors, with the secret that hashes are made with.
    """

    protections: Protections
    secret: bytes = field(default=b"", repr=False)

    @property
    def hashed(self) -> frozenset[str]:
        """The names of the columns that are hashed."""
        return frozenset(name for name, each in self.protections.items() if each is ColumnProtection.HASH)

    def keep(self, columns: Sequence[Column]) -> tuple[Column, ...]:
        """Return the columns that ``protect`` leaves."""
        return without_dropped(columns, self.protections)

    def protect(self, columns: Sequence[Column], values: Sequence[pa.Array]) -> list[pa.Array]:
        """Return the arrays of the columns that stay, in their order."""
        kept = []
        for column, array in zip(columns, values, strict=True):
            match self.protections.get(column.name):
                case ColumnProtection.HASH:
                    kept.append(self._hash(array))
                case ColumnProtection.MASK:
                    kept.append(_mask(array))
                case ColumnProtection.DROP:
                    pass
                case None:
                    kept.append(array)
        return kept

    def _hash(self, texts: pa.StringArray) -> pa.StringArray:
        hash_text = make_hash(self.secret)
        hashed = (None if each is None else hash_text(each) for each in texts.to_pylist())
        return pa.array(hashed, pa.string(), size=len(texts))


def _mask(texts: pa.StringArray) -> pa.StringArray:
    ends = pc.binary_join_element_wise(STARS, pc.utf8_slice_codeunits(texts, -_SHOWN_OF_MASKED), "")
    masked = pc.if_else(pc.greater(pc.utf8_length(texts), MOST_HIDDEN), ends, STARS)
    return pc.if_else(texts.is_valid(), masked, pa.scalar(None, pa.string()))


NO_PROTECTION = Protector({})


@dataclass(frozen=True)
class Decoded:
    """What became of a batch of records; each is in exactly one part.

    ``rows`` have the schema of the decoder; ``set_aside`` has ``QUARANTINE_SCHEMA``; ``skipped`` are tombstones that
    are only counted, with the columns of the batch. ``undeclared`` are names of fields, together with the records of
    rows that have exactly these.
    """

    rows: Sequence[pa.RecordBatch]
    set_aside: pa.RecordBatch | None = None
    skipped: pa.RecordBatch | None = None
    undeclared: Sequence[tuple[AbstractSet[str], Sighting]] = ()


@dataclass(frozen=True)
class RecordDecoder:
    """Decodes batches of records, with the columns of ``formats.records.RECORD_SCHEMA``; pickled to the executors.

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
        values, is_tombstone = records["value"], records["value"].is_null().to_numpy(zero_copy_only=False)
        if is_out_of_time.any():
            values = pc.if_else(pa.array(is_out_of_time), pa.scalar(None, pa.binary()), values)
        found = self._values.decode(values, records["headers"])
        errors = {**found.errors, **dict.fromkeys(np.flatnonzero(is_out_of_time).tolist(), OUT_OF_TIME)}
        rows = []
        if found.rows.num_rows:
            kept = records if found.is_decoded.all() else records.filter(pa.array(found.is_decoded))
            rows.append(self._join(found.rows.columns, kept, is_deleted=False))
        without, skipped = np.flatnonzero(is_tombstone & ~is_out_of_time), None
        if len(without) and self.tombstones is TombstonePolicy.SKIP:
            skipped = records.take(pa.array(without))
        elif len(without):
            rows += self._read_tombstones(records, without, errors)
        undeclared = [
            (names, Sighting(len(places), _find_first(records, places.tolist())))
            for names, places in found.undeclared
            if self.unknown_fields.counts and len(places)
        ]
        return Decoded(rows, refuse_records(records, sorted(errors.items())), skipped, undeclared)

    def _read_tombstones(
        self, records: pa.RecordBatch, places: np.ndarray, errors: dict[int, str]
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of records without a value. ``errors`` gets, by place, why others become none."""
        found: dict[int, Sequence[Any]] = {}
        for place in places.tolist():
            try:
                found[place] = self._read_tombstone(records["key"][place])
            except UnfitError as error:
                errors[place] = str(error)
        if found:
            by_column = list(zip(*found.values(), strict=True))
            types = arrow_schema((*self.columns, *self._kept)).types
            columns = [pa.array(each, type_) for each, type_ in zip(by_column, types, strict=True)]
            yield self._join(columns, records.take(pa.array(list(found))), is_deleted=True)

    def _read_tombstone(self, key: pa.Scalar) -> Sequence[Any]:
        """Return a value a column. Raises UnfitError."""
        own: Sequence[Any] = [None] * len(self.columns)
        match self.tombstones:
            case TombstonePolicy.DELETE if self._keys.columns_of_key:
                own = self._keys.read(key.as_py())
            case TombstonePolicy.DELETE | TombstonePolicy.KEEP:
                pass
            case _:
                raise UnfitError(NO_VALUE)
        return [*own, *(None for _ in self._kept)]

    def _join(self, columns: Sequence[pa.Array], records: pa.RecordBatch, is_deleted: bool) -> pa.RecordBatch:
        """Return decoded columns, protected, beside the places of their records: every row is made here."""
        places = [records[name.removeprefix("_")] for name in PROVENANCE_COLUMNS[:3]]
        deleted = [pa.repeat(is_deleted, records.num_rows)] if self.tombstones is TombstonePolicy.DELETE else []
        outer = records.columns[len(RECORD_SCHEMA) :]
        own, rest = columns[: len(self.columns)], columns[len(self.columns) :]
        kept = self.protector.protect(self._decoded, [*own, *outer, *rest])
        return pa.RecordBatch.from_arrays(
            [*kept, *places, _moments(records["timestamp_ms"]), *deleted], schema=self.schema
        )

    @cached_property
    def _values(self) -> DocumentDecoder | RegisteredDecoder:
        return self.registered or DocumentDecoder((*self.columns, *self._kept), self.unknown_fields)

    @cached_property
    def _outer(self) -> OuterReader:
        return OuterReader(self.outer, self.registered_keys)

    @cached_property
    def _wider_schema(self) -> pa.Schema:
        return pa.schema([*RECORD_SCHEMA, *(field.with_name(f"column {field.name}") for field in self._outer.schema)])

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
