"""The formats of records that are compared: the same fields as flat JSON, nested JSON, Avro and Protobuf.

Avro is written by fastavro and Protobuf by its runtime, so no decoder reads what its own package has written. fastavro
is a package of the tests.
"""

import io
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import fastavro
import pyarrow as pa

from batchledger.formats.decoding.avro.decoder import AvroDecoder
from batchledger.formats.decoding.blocks import BlockDecoder
from batchledger.formats.decoding.protobuf.compiling import compile_files
from batchledger.formats.decoding.protobuf.decoder import ProtobufDecoder
from batchledger.formats.decoding.protobuf.schema import load_message, make_class
from batchledger.formats.registry.client import Registry
from batchledger.local.stack.defaults import REGISTRY_CONNECTION
from batchledger.model.records.columns import parse_columns
from batchledger.model.records.registry_settings import RegistrySettings
from batchledger.model.records.rules import UnknownFieldPolicy
from batchledger.model.records.writer_schemas import SchemaType
from bench.records import SCHEMA, Write, describe, make_fields, write_json

Decode = Callable[[pa.BinaryArray], tuple[Any, ...]]
"""Returns the rows of a block of values without frames, and more."""

NESTED_COLUMNS = "message_id string, device struct<id int, seq bigint>, amount double, note array<string>"
AVRO_FIELDS = {"message_id": "string", "device_id": "int", "seq": "long", "amount": "double", "note": "string"}
AVRO_SCHEMA = json.dumps(
    {
        "type": "record",
        "name": "order",
        "fields": [{"name": name, "type": type_} for name, type_ in AVRO_FIELDS.items()],
    }
)
PROTOBUF_SCHEMA = """
syntax = "proto3";
message Order {
  string message_id = 1;
  int32 device_id = 2;
  int64 seq = 3;
  double amount = 4;
  string note = 5;
}
"""
FIRST_MESSAGE = b"\0"
"""What Confluent's frame of Protobuf has behind the id: the records are the first message of their file."""


@dataclass(frozen=True)
class Format:
    """One way to write the fields of a record.

    ``write`` gives values without a frame. ``as_flat`` selects the fields of the flat records from the table.
    ``writer_schema`` is the schema to register, and ``frame_end`` what a frame has behind its id.
    """

    name: str
    write: Write
    open_decoder: Callable[[], Decode]
    columns: str = SCHEMA
    as_flat: str = "message_id, device_id, seq, amount, note"
    writer_schema: tuple[SchemaType, str] | None = None
    frame_end: bytes = field(default=b"", repr=False)

    @property
    def source(self) -> dict[str, str]:
        """The keys of a pipeline's source that differ from the defaults."""
        named = {} if self.columns == SCHEMA else {"schema": self.columns}
        if self.writer_schema is None:
            return named
        return {**named, "format": self.writer_schema[0].lower(), "registry": REGISTRY_CONNECTION}

    def register(self, registry_url: str) -> Write:
        """Return what writes values as they are in a topic: after their schema is registered, in Confluent's frame."""
        if self.writer_schema is None:
            return self.write
        schema_id = Registry(RegistrySettings(registry_url)).register(f"bench {self.name}", *self.writer_schema)
        return lambda number: self.write_framed(schema_id, number)

    def write_framed(self, schema_id: int, number: int) -> bytes:
        """Return a value in Confluent's frame."""
        return b"\0" + schema_id.to_bytes(4, "big") + self.frame_end + self.write(number)


def write_nested(number: int) -> bytes:
    """Return a record whose device is an object, and whose note is an array of its words."""
    fields = make_fields(number)
    device = {"id": fields["device_id"], "seq": fields["seq"]}
    return write_json(
        {
            "message_id": fields["message_id"],
            "device": device,
            "amount": fields["amount"],
            "note": fields["note"].split(),
        }
    )


def write_avro(number: int) -> bytes:
    """Return the datum of a record."""
    out = io.BytesIO()
    fastavro.schemaless_writer(out, _parse_avro(), make_fields(number))
    return out.getvalue()


def write_protobuf(number: int) -> bytes:
    """Return the message of a record."""
    written: bytes = _make_message_class()(**make_fields(number)).SerializeToString()
    return written


@cache
def _parse_avro() -> Any:
    return fastavro.parse_schema(json.loads(AVRO_SCHEMA))


@cache
def _make_message_class() -> Any:
    return make_class(load_message(compile_files(PROTOBUF_SCHEMA, ()), (0,)))


def _open_json(columns: str) -> Decode:
    # The policy of a pipeline that names none.
    return BlockDecoder(parse_columns(columns), UnknownFieldPolicy.WARN).decode


FLAT_JSON = Format("flat JSON", describe, lambda: _open_json(SCHEMA))
NESTED_JSON = Format(
    "nested JSON",
    write_nested,
    lambda: _open_json(NESTED_COLUMNS),
    columns=NESTED_COLUMNS,
    as_flat="message_id, (device ->> 'id')::int, (device ->> 'seq')::bigint, amount, array_to_string(note, ' ')",
)
AVRO = Format(
    "Avro",
    write_avro,
    lambda: AvroDecoder(AVRO_SCHEMA, (), parse_columns(SCHEMA)).decode,
    writer_schema=(SchemaType.AVRO, AVRO_SCHEMA),
)
PROTOBUF = Format(
    "Protobuf",
    write_protobuf,
    lambda: ProtobufDecoder(PROTOBUF_SCHEMA, (), (0,), parse_columns(SCHEMA)).decode,
    writer_schema=(SchemaType.PROTOBUF, PROTOBUF_SCHEMA),
    frame_end=FIRST_MESSAGE,
)
FORMATS = (FLAT_JSON, NESTED_JSON, AVRO, PROTOBUF)
