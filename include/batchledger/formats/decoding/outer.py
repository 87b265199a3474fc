"""Reads a record's key and headers as columns. The reference: docs/reference/meaning.md.

A key or header that is absent or null makes nulls. One that does not fit its column makes the record unfit: it is set
aside like a record whose value does not fit.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from batchledger.formats.arrow_types import arrow_schema
from batchledger.formats.decoding.documents import DocumentDecoder
from batchledger.formats.decoding.meaning import UnfitError
from batchledger.formats.decoding.objects import make_bytes_reader
from batchledger.formats.decoding.registered import RegisteredDecoder
from batchledger.formats.records import UNREADABLE_NAME, last_by_name
from batchledger.model.records.outer import KeyFormat, OuterColumns, RecordKey

UNREADABLE_HEADERS = "a header's name is not UTF-8, so its headers cannot be read"

Errors = dict[int, str]
"""Why records are unfit, by their place in the batch."""


@dataclass(frozen=True)
class OuterReader:
    """Reads the columns of many records; pickled to the executors. ``keys`` decodes keys that name their schema."""

    outer: OuterColumns
    keys: RegisteredDecoder | None = None

    @cached_property
    def schema(self) -> pa.Schema:
        """The columns, in their order."""
        return arrow_schema(self.outer.columns)

    def read(self, records: pa.RecordBatch) -> tuple[Sequence[pa.Array], Errors]:
        """Return an array a column, of all records, and why some are unfit; these have nulls."""
        errors: Errors = {}
        columns: list[pa.Array] = []
        if self.outer.key is not None:
            columns += self._read_keys(self.outer.key, records, errors)
        if self.outer.headers:
            columns += self._read_headers(records["headers"], errors)
        return columns, errors

    def _read_keys(self, key: RecordKey, records: pa.RecordBatch, errors: Errors) -> Iterator[pa.Array]:
        keys = records["key"]
        decoder = DocumentDecoder(key.columns) if key.format is KeyFormat.JSON else self.keys
        if decoder is not None:
            found = decoder.decode(keys, records["headers"])
            errors.update({place: f"its key: {why}" for place, why in found.errors.items()})
            row_by_place = np.where(found.is_decoded, np.cumsum(found.is_decoded) - 1, 0)
            taken = pa.array(row_by_place, mask=~found.is_decoded)
            yield from (column.take(taken) for column in found.rows.columns)
        elif key.format is KeyFormat.BYTES:
            yield keys
        else:
            (column,) = key.columns
            read = make_bytes_reader(column)
            values = [_read(place, each, read, "key", errors) for place, each in enumerate(keys.to_pylist())]
            yield pa.array(values, self.schema.field(0).type)

    def _read_headers(self, texts: pa.Array, errors: Errors) -> Iterator[pa.Array]:
        by_name: list[Mapping[str, bytes | None]] = []
        for place, text in enumerate(texts.to_pylist()):
            found = {} if text is None else last_by_name(text)
            if UNREADABLE_NAME in found:
                errors.setdefault(place, UNREADABLE_HEADERS)
            by_name.append(found)
        for header in self.outer.headers:
            read = bytes if header.is_bytes else make_bytes_reader(header.column)
            values = [
                _read(place, found.get(header.header), read, f"header {header.header}", errors)
                for place, found in enumerate(by_name)
            ]
            yield pa.array(values, self.schema.field(header.column.name).type)


def _read(place: int, content: bytes | None, read: Callable[[bytes], Any], what: str, errors: Errors) -> Any:
    """Return the value; None if there is no content, or if it does not fit, which is noted."""
    if content is None:
        return None
    try:
        return read(content)
    except UnfitError as error:
        errors.setdefault(place, f"its {what}: {error}")
        return None
