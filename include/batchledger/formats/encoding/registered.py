"""Values of an output topic in Avro: a registry knows their schema before the first value is written by it.

The schema is made of the columns that rows have in Arrow. Every column, field of a struct, item of an array and value
of a map may be null. So each is a union with ``null``, and a field has ``null`` as its default: a column more, or one
less, stays compatible. Equal columns give the same text, on every run, so a registry has it once.
"""

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NoReturn

import pyarrow as pa

from batchledger.formats.arrow_types import is_array
from batchledger.formats.encoding.avro_values import AvroValues
from batchledger.model.errors import ConfigurationError
from batchledger.model.records.columns import DELETED_COLUMN, PROVENANCE_COLUMNS
from batchledger.model.records.writer_schemas import SchemaType
from batchledger.ports import SchemaRegistrar

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_NO_PART_OF_A_NAME = re.compile(r"[^A-Za-z0-9_]", re.ASCII)

_SCALARS = {
    pa.bool_(): "boolean",
    pa.int8(): "int",
    pa.int16(): "int",
    pa.int32(): "int",
    pa.int64(): "long",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.string(): "string",
    pa.large_string(): "string",
    pa.binary(): "bytes",
    pa.large_binary(): "bytes",
}


def name_record(topic: str) -> str:
    """Return the name of a topic's record: the topic, with ``_`` for whatever Avro allows in no name.

    Example: ``shop.orders-v2`` is ``shop_orders_v2``, and ``2026`` is ``_2026``.
    """
    name = _NO_PART_OF_A_NAME.sub("_", topic)
    return f"_{name}" if name[:1].isdigit() else name


def write_schema(name: str, columns: Iterable[pa.Field]) -> str:
    """Return the schema of the columns as JSON. ``name`` is the record's.

    A struct is a record, named by its place: ``orders.customer.address`` is the field ``address`` of column
    ``customer``, also if it lies in an array or a map. Raises ConfigurationError with the column that Avro cannot have.
    """
    return json.dumps(_record("", name, columns), separators=(",", ":"))


def _record(namespace: str, name: str, columns: Iterable[pa.Field]) -> dict[str, Any]:
    whole = f"{namespace}.{name}" if namespace else name
    fields = [_field(whole, each) for each in columns]
    twice = sorted({each["name"] for each in fields if sum(other["name"] == each["name"] for other in fields) > 1})
    if twice:
        what = "is there twice, and a record of Avro has each name once"
        _refuse(f"{whole}.{twice[0]}", what, "Rename one of them in the transform")
    return {"type": "record", "name": name, **({"namespace": namespace} if namespace else {}), "fields": fields}


def _field(within: str, field: pa.Field) -> dict[str, Any]:
    if _NAME.fullmatch(field.name) is None:
        what = "has a name that Avro does not allow: only ASCII letters, digits and _, with no digit first"
        _refuse(f"{within}.{field.name}", what, "Give it another name, in source.schema or in the transform")
    return {"name": field.name, "type": _nullable(within, field.name, field.type), "default": None}


def _nullable(within: str, name: str, type_: pa.DataType) -> list[Any]:
    return ["null", _type(within, name, type_)]


def _type(within: str, name: str, type_: pa.DataType) -> str | dict[str, Any]:
    found: str | dict[str, Any]
    match type_:
        case _ if type_ in _SCALARS:
            found = _SCALARS[type_]
        case _ if pa.types.is_struct(type_):
            found = _record(within, name, type_)
        case _ if is_array(type_):
            found = {"type": "array", "items": _nullable(within, name, type_.value_type)}
        case _ if pa.types.is_map(type_) and type_.key_type in (pa.string(), pa.large_string()):
            found = {"type": "map", "values": _nullable(within, name, type_.item_type)}
        case _ if pa.types.is_decimal128(type_) and type_.scale >= 0:
            found = {"type": "bytes", "logicalType": "decimal", "precision": type_.precision, "scale": type_.scale}
        case _ if type_ == pa.date32():
            found = {"type": "int", "logicalType": "date"}
        case _ if pa.types.is_timestamp(type_) and type_.unit == "us":
            found = {"type": "long", "logicalType": "timestamp-micros" if type_.tz else "local-timestamp-micros"}
        case _:
            _refuse(f"{within}.{name}", f"has type {type_}, for which Avro has no type", "Let the transform cast it")
    return found


def _refuse(place: str, what: str, advice: str) -> NoReturn:
    column = place.partition(".")[2]
    raise ConfigurationError(
        f"Column {column!r} {what}. Nothing was staged.",
        why="The sink writes Avro: sink.format is avro.",
        advice=f"{advice}.",
        subject=column,
    )


_UNREGISTERED = 0
"""No registry gives this id away. The values of a dry run have it: they are staged, and never sent."""


@dataclass(frozen=True)
class RegisteredOutput:
    """Registers the schema of ``topic`` under ``subject``, a schema once as long as this object lives."""

    registry: SchemaRegistrar = field(repr=False)
    subject: str
    topic: str
    _id_by_text: dict[str, int] = field(default_factory=dict, repr=False, compare=False)

    def open(self, schema: pa.Schema, *, is_dry_run: bool = False) -> AvroValues:
        """Return what writes rows with these columns; no value has the columns of provenance.

        A dry run registers nothing. Raises ConfigurationError if Avro cannot have a column, SchemaRefusedError with the
        registry's words, ServiceUnavailableError or AccessRefusedError.
        """
        columns = [each for each in schema if each.name not in (*PROVENANCE_COLUMNS, DELETED_COLUMN)]
        text = write_schema(name_record(self.topic), columns)
        if is_dry_run:
            return AvroValues(_UNREGISTERED)
        if text not in self._id_by_text:
            self._id_by_text[text] = self.registry.register(self.subject, SchemaType.AVRO, text)
        return AvroValues(self._id_by_text[text])
