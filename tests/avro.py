"""Records in Avro: schemas of a real registry, and values written by a library of others."""

import io
import json
import struct
from collections.abc import Mapping
from typing import Any

import fastavro

from batchledger.formats.registry.client import Registry
from batchledger.model.records.registry_settings import RegistrySettings
from batchledger.model.records.writer_schemas import SchemaType

Schema = Mapping[str, Any]


def record_schema(**fields: Any) -> Schema:
    """The schema of a record with these fields: name and type."""
    return {"type": "record", "name": "order", "fields": [{"name": name, "type": fields[name]} for name in fields]}


def register(url: str, subject: str, schema: Schema) -> int:
    """Return the id that the registry gives the schema."""
    return Registry(RegistrySettings(url)).register(subject, SchemaType.AVRO, json.dumps(schema))


def encode(schema: Schema, value: Mapping[str, Any]) -> bytes:
    """The datum of a value, without a frame."""
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(dict(schema)), value)
    return out.getvalue()


def frame(schema_id: int, datum: bytes = b"") -> bytes:
    """A datum in Confluent's frame."""
    return b"\0" + struct.pack(">I", schema_id) + datum
