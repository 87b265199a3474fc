"""Columns that do not come from a record's value: from its key, and from its headers. Pure."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from batchledger.model.quoting import quote
from batchledger.model.records.columns import Column, parse_columns
from batchledger.model.records.types import Scalar
from batchledger.model.records.writer_schemas import SchemaType

_HEADER = re.compile(r"header\s+(?P<name>\S+)\s+(?P<type>\S.*)")
BYTES = "bytes"
"""A header or key as it is, in a column of type ``binary``."""


class KeyFormat(StrEnum):
    """What the bytes of a record's key are.

    ``STRING``: UTF-8 text, read as the type of its one column. ``BYTES``: kept as they are in one ``binary`` column.
    ``JSON``: one object, whose fields are the columns. ``AVRO`` and ``PROTOBUF``: a datum of a schema of the registry.
    """

    STRING = "string"
    BYTES = "bytes"
    JSON = "json"
    AVRO = "avro"
    PROTOBUF = "protobuf"

    @property
    def schema_type(self) -> SchemaType | None:
        """The language of the schemas that keys were written with; None for keys that have none."""
        return {KeyFormat.AVRO: SchemaType.AVRO, KeyFormat.PROTOBUF: SchemaType.PROTOBUF}.get(self)


@dataclass(frozen=True, slots=True)
class RecordKey:
    """The columns that come from the key."""

    format: KeyFormat
    columns: tuple[Column, ...]


@dataclass(frozen=True, slots=True)
class HeaderColumn:
    """A column that comes from the last header of a name: its text, or its bytes as they are."""

    column: Column
    header: str
    is_bytes: bool


@dataclass(frozen=True, slots=True)
class OuterColumns:
    """What a row has of its record beside the value."""

    key: RecordKey | None = None
    headers: tuple[HeaderColumn, ...] = ()

    @property
    def columns(self) -> tuple[Column, ...]:
        """The columns of the key, then of the headers, as they are declared."""
        return (*(self.key.columns if self.key else ()), *(each.column for each in self.headers))


NO_OUTER = OuterColumns()


def parse_key(format_: KeyFormat, text: str) -> RecordKey:
    """Read the columns of a key. Raises ValueError with what is allowed."""
    columns = parse_columns(text)
    if format_ in (KeyFormat.STRING, KeyFormat.BYTES) and len(columns) != 1:
        raise ValueError(f"format {format_} makes one column; write one, or format: json")
    if format_ is KeyFormat.STRING and not (columns[0].is_scalar and not columns[0].path):
        raise ValueError(f"format string makes a column of one text; {columns[0].type} needs format: json")
    if format_ is KeyFormat.BYTES and columns[0].type is not Scalar.BINARY:
        raise ValueError(f"format bytes makes a binary column; write '{columns[0].name} binary'")
    return RecordKey(format_, columns)


def parse_headers(texts: Mapping[str, str]) -> tuple[HeaderColumn, ...]:
    """Read ``{tenant: "header tenant string"}``. Raises ValueError with what is allowed."""
    return tuple(_parse_header(name, text) for name, text in texts.items())


def _parse_header(name: str, text: str) -> HeaderColumn:
    found = _HEADER.fullmatch(text.strip())
    if found is None:
        raise ValueError(f"{quote(text)} is no header; write 'header NAME TYPE', as 'header tenant string'")
    is_bytes = found["type"].strip().lower() == BYTES
    (column,) = parse_columns(f"{name} {'binary' if is_bytes else found['type']}")
    if not column.is_scalar or column.path:
        raise ValueError(f"{quote(text)}: a header is one text; declare it as string, and read it in a transform")
    return HeaderColumn(column, found["name"], is_bytes)
