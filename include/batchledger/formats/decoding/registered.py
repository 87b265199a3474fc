"""Decodes records that name the schema that they were written with, many of one schema at once.

What cannot be decoded is set aside with its reason: a frame that is none, a schema that the registry does not know or
that does not fit the columns, a datum that is not what its schema says. A registry that cannot be asked is an error.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from batchledger.bounds.alarm import ALARM
from batchledger.formats.arrow_types import arrow_schema
from batchledger.formats.decoding.avro.decoder import AvroDecoder
from batchledger.formats.decoding.avro.proposing import find_avro_shape
from batchledger.formats.decoding.avro.resolution import ResolvingDecoder
from batchledger.formats.decoding.avro.schema import AvroSchemaError, parse_schema
from batchledger.formats.decoding.decoded import DecodedData
from batchledger.formats.decoding.framing import (
    split_frames,
    split_header,
    split_message_indexes,
    split_messages,
)
from batchledger.formats.decoding.nested import declare_fields
from batchledger.formats.decoding.proposing import Shape, list_undeclared
from batchledger.formats.decoding.protobuf.compiling import ProtobufSchemaError
from batchledger.formats.decoding.protobuf.decoder import ProtobufDecoder
from batchledger.formats.decoding.protobuf.proposing import find_protobuf_shape
from batchledger.formats.records import last_by_name
from batchledger.model.errors import ConfigurationError
from batchledger.model.records.columns import REST, Column
from batchledger.model.records.unknown_fields import write_name
from batchledger.model.records.writer_schemas import (
    FIRST_MESSAGE,
    Framing,
    SchemaId,
    SchemaType,
    SubjectVersion,
    WriterSchema,
)

FindSchema = Callable[[SchemaId | SubjectVersion], WriterSchema | str]
"""Returns the schema of an id or GUID, or of a version of a subject, or why there is none."""

Written = tuple[WriterSchema, tuple[int, ...] | str]
"""A writer's schema, and which message of it records are; of Avro it is always the first."""

VALUE_HEADER, KEY_HEADER = "__value_schema_id", "__key_schema_id"
"""The headers that name schemas, as Confluent's clients call them."""

ONLY_SCHEMA = 0
"""The id of the schema that all records have, if these name none."""


class _Writer(NamedTuple):
    """The schema that records were written with, and the message of it, which only Protobuf has several of."""

    schema_id: SchemaId
    message: tuple[int, ...] | str


class _Known(NamedTuple):
    """What decodes the data of a writer, and the fields that these have and no column declares."""

    decoder: AvroDecoder | ProtobufDecoder | ResolvingDecoder
    undeclared: frozenset[str]


@dataclass
class RegisteredDecoder:
    """Decodes values, or keys, into ``columns``; pickled to the executors.

    ``message`` is the message of Protobuf that values are if their frame or header names none. ``reader`` is a
    schema of Avro, whose aliases and defaults stand for fields that a writer lacks. The last column may be ``REST``, if
    there is no ``reader``. Then it has what no other column declares, and only fields without a name are undeclared.
    """

    type: SchemaType
    framing: Framing
    columns: tuple[Column, ...]
    find_schema: FindSchema | None = None
    only_schema: WriterSchema | None = None
    header: str = VALUE_HEADER
    refuses_undeclared: bool = False
    message: tuple[int, ...] | str = FIRST_MESSAGE
    reader: SubjectVersion | None = None
    _decoders: dict[_Writer, _Known | str] = field(default_factory=dict, init=False)

    def prepare(self, values: pa.BinaryArray, headers: pa.StringArray) -> None:
        """Look up and compile the schemas that ``decode`` needs for the values. Raises its errors."""
        for writer, *_ in self._group(values, headers, {}):
            self._find_decoder(writer)

    def decode(self, values: pa.BinaryArray, headers: pa.StringArray) -> DecodedData:
        """Decode the values that are not null; ``headers`` are their records', as ``RECORD_SCHEMA`` has them."""
        errors: dict[int, str] = {}
        parts, places = [], []
        undeclared: dict[frozenset[str], list[np.ndarray]] = {}
        for writer, found, payloads in self._group(values, headers, errors):
            known = self._find_decoder(writer)
            if isinstance(known, str):
                errors.update(dict.fromkeys(found.tolist(), known))
                continue
            decoder = known.decoder
            unknown: Mapping[int, frozenset[str]] = {}
            if isinstance(decoder, ProtobufDecoder):
                rows, is_decoded, refused, unknown = decoder.decode_noticing(payloads)
            else:
                rows, is_decoded, refused = decoder.decode(payloads)
            errors.update({int(found[place]): why for place, why in refused.items()})
            is_kept = is_decoded.copy()
            for place, names in unknown.items():
                if self.refuses_undeclared and is_decoded[place]:
                    errors[int(found[place])] = _refuse(names)
                    is_kept[place] = False
            if (is_kept != is_decoded).any():
                rows = rows.filter(pa.array(is_kept[is_decoded]))
            parts.append(rows)
            places.append(found[is_kept])
            for names, members in _group_by_names(known.undeclared, unknown, is_kept):
                undeclared.setdefault(names, []).append(found[members])
        is_decoded = np.zeros(len(values), bool)
        is_decoded[np.concatenate([*places, np.array([], np.int64)]).astype(np.int64)] = True
        by_names = [(names, np.concatenate(each)) for names, each in undeclared.items()]
        return DecodedData(self._put_in_order(parts, places), is_decoded, errors, by_names)

    def _group(
        self, values: pa.BinaryArray, headers: pa.StringArray, errors: dict[int, str]
    ) -> Iterator[tuple[_Writer, np.ndarray, pa.BinaryArray]]:
        """Yield what wrote records of the batch, the places of these, and their payloads.

        ``errors`` gets, by place, why other values have none.
        """
        match self.framing:
            case Framing.CONFLUENT:
                yield from self._group_by_frames(values, errors)
            case Framing.HEADER:
                for writer, found in self._group_by_headers(values, headers, errors):
                    yield writer, found, values.take(pa.array(found))
            case Framing.NONE:
                found = np.flatnonzero(values.is_valid().to_numpy(zero_copy_only=False))
                if len(found):
                    yield _Writer(ONLY_SCHEMA, self.message), found, values.take(pa.array(found))

    def _group_by_frames(
        self, values: pa.BinaryArray, errors: dict[int, str]
    ) -> Iterator[tuple[_Writer, np.ndarray, pa.BinaryArray]]:
        unframed = split_frames(values)
        errors.update(unframed.errors)
        for schema_id in np.unique(unframed.schema_ids[unframed.schema_ids >= 0]).tolist():
            found = np.flatnonzero(unframed.schema_ids == schema_id)
            payloads = unframed.payloads.take(pa.array(found))
            if self.type is not SchemaType.PROTOBUF:
                yield _Writer(schema_id, self.message), found, payloads
                continue
            messages = split_messages(payloads)
            errors.update({int(found[place]): why for place, why in messages.errors.items()})
            for indexes, members in messages.places_by_indexes.items():
                yield _Writer(schema_id, indexes), found[members], messages.payloads.take(pa.array(members))

    def _group_by_headers(
        self, values: pa.BinaryArray, headers: pa.StringArray, errors: dict[int, str]
    ) -> Iterator[tuple[_Writer, np.ndarray]]:
        places_by_header: dict[bytes | None, list[int]] = {}
        for place, (value, text) in enumerate(zip(values, headers.to_pylist(), strict=True)):
            if value.is_valid:
                header = None if text is None else last_by_name(text).get(self.header)
                places_by_header.setdefault(header, []).append(place)
        for header, found in places_by_header.items():
            try:
                writer = self._read_header(header)
            except ValueError as error:
                errors.update(dict.fromkeys(found, str(error)))
            else:
                yield writer, np.array(found)

    def _read_header(self, header: bytes | None) -> _Writer:
        """Return what a header names. Raises ValueError."""
        if header is None:
            raise ValueError(f"it has no header {self.header}")
        try:
            return self._take_header_apart(header)
        except ValueError as error:
            raise ValueError(f"its header {self.header}: {error}") from None

    def _take_header_apart(self, header: bytes) -> _Writer:
        schema_id, rest = split_header(header)
        if not rest:
            return _Writer(schema_id, self.message)
        if self.type is not SchemaType.PROTOBUF:
            raise ValueError("it is longer than a schema id")
        indexes, rest = split_message_indexes(rest)
        if rest:
            raise ValueError("it has bytes behind its message indexes")
        return _Writer(schema_id, indexes)

    def count_schemas(self, batches: Iterable[pa.RecordBatch]) -> tuple[Mapping[Written, int], Mapping[int, str]]:
        """Return how many values were written with each schema, and why others name none that is known.

        The others are called by the number of the record, from 0 through all batches.
        """
        counts: dict[Written, int] = {}
        faults: dict[int, str] = {}
        before = 0
        for batch in batches:
            errors: dict[int, str] = {}
            for writer, found, _ in self._group(batch["value"], batch["headers"], errors):
                schema = self._find_schema(writer.schema_id)
                if isinstance(schema, WriterSchema) and schema.type is self.type:
                    written = schema, writer.message
                    counts[written] = counts.get(written, 0) + len(found)
                else:
                    errors.update(dict.fromkeys(found.tolist(), self._explain_schema(writer.schema_id, schema)))
            faults.update({before + place: why for place, why in errors.items()})
            before += batch.num_rows
        return counts, faults

    def _explain_schema(self, schema_id: SchemaId, schema: WriterSchema | str) -> str:
        """Return why a schema does not help to read records."""
        if isinstance(schema, str):
            return schema
        named = "its schema" if self.framing is Framing.NONE else f"schema {schema_id}"
        return f"{named} is of type {schema.type}, not {self.type}"

    def _put_in_order(self, parts: Sequence[pa.RecordBatch], places: Sequence[np.ndarray]) -> pa.RecordBatch:
        if not parts:
            schema = arrow_schema(self.columns)
            return pa.RecordBatch.from_arrays([pa.array([], each.type) for each in schema], schema=schema)
        if len(parts) == 1:
            return parts[0]
        order = pa.array(np.argsort(np.concatenate(places), kind="stable"))
        return pa.concat_batches(parts).take(order)

    def _find_decoder(self, writer: _Writer) -> _Known | str:
        if writer not in self._decoders:
            with ALARM.held():
                self._decoders[writer] = self._make_decoder(writer)
        return self._decoders[writer]

    def _make_decoder(self, writer: _Writer) -> _Known | str:
        schema = self._find_schema(writer.schema_id)
        named = "its schema" if self.framing is Framing.NONE else f"schema {writer.schema_id}"
        if isinstance(schema, str) or schema.type is not self.type:
            return self._explain_schema(writer.schema_id, schema)
        try:
            decoder = make_datum_decoder(schema, self.columns, writer.message, self.find_reader())
            columns = decoder.written_columns if isinstance(decoder, ResolvingDecoder) else self.columns
            keeps = REST in columns
            names = frozenset[str]() if keeps else find_undeclared(schema, columns, writer.message)
        except (AvroSchemaError, ProtobufSchemaError) as error:
            return f"{named}: {error}"
        if self.refuses_undeclared and names:
            return _refuse(names)
        return _Known(decoder, names)

    def find_reader(self) -> WriterSchema | None:
        """Return the reader's schema, None if no file names one. Raises ConfigurationError if it cannot be used."""
        if self.reader is None:
            return None
        found = self._find_schema(self.reader)
        why = found if isinstance(found, str) else _explain_reader(found)
        if why is not None or isinstance(found, str):
            raise ConfigurationError(
                f"source.reader_schema: {self.reader} cannot be used. Nothing was written.",
                why=f"{why}.",
                advice="Write the number of a version of this subject. Its schema must be a record of Avro.",
                subject=str(self.reader),
            )
        return found

    def _find_schema(self, schema_id: SchemaId | SubjectVersion) -> WriterSchema | str:
        schema = self.only_schema or (self.find_schema and self.find_schema(schema_id))
        if not schema:
            raise LookupError("the schemas of records were not opened")
        return schema


def make_datum_decoder(
    schema: WriterSchema, columns: tuple[Column, ...], message: tuple[int, ...] | str, reader: WriterSchema | None
) -> AvroDecoder | ProtobufDecoder | ResolvingDecoder:
    """Return what decodes data of a writer's schema, for Avro also with a reader's.

    Raises AvroSchemaError or ProtobufSchemaError.
    """
    if schema.type is SchemaType.PROTOBUF:
        return ProtobufDecoder(schema.text, schema.named_texts, message, columns)
    if reader is not None:
        return ResolvingDecoder((schema.text, schema.named_texts), (reader.text, reader.named_texts), columns)
    return AvroDecoder(schema.text, schema.named_texts, columns)


def find_shape(schema: WriterSchema, message: tuple[int, ...] | str) -> Shape:
    """Return what a writer's schema says of values. Raises AvroSchemaError or ProtobufSchemaError."""
    if schema.type is SchemaType.PROTOBUF:
        return find_protobuf_shape(schema.text, schema.named_texts, message)
    return find_avro_shape(schema.text, schema.named_texts)


def find_undeclared(
    schema: WriterSchema, columns: tuple[Column, ...], message: tuple[int, ...] | str
) -> frozenset[str]:
    """Return the fields of a writer's schema that no column declares, also within: ``customer.name``."""
    return frozenset(list_undeclared(find_shape(schema, message), declare_fields(columns)))


def _explain_reader(schema: WriterSchema) -> str | None:
    """Return why a schema cannot be a reader's, or None."""
    if schema.type is not SchemaType.AVRO:
        return f"It is of type {schema.type}"
    try:
        parse_schema(schema.text, schema.named_texts, "The reader's schema")
    except AvroSchemaError as error:
        return str(error)
    return None


def _refuse(names: Iterable[str]) -> str:
    return f"field {min(map(write_name, names))} is not declared"


def _group_by_names(
    of_all: frozenset[str], unknown: Mapping[int, frozenset[str]], is_kept: np.ndarray
) -> Iterator[tuple[frozenset[str], np.ndarray]]:
    """Yield names of fields with the places of the records that have exactly these beside declared ones."""
    others = is_kept.copy()
    others[list(unknown)] = False
    if of_all and others.any():
        yield of_all, np.flatnonzero(others)
    for place, names in unknown.items():
        if is_kept[place]:
            yield of_all | names, np.array([place])
