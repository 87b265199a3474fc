"""Decodes Protobuf messages, whose writer's schema is known, into Arrow columns.

The promise is docs/reference/protobuf.md. The runtime of Protobuf reads the bytes. ``checking`` looks for what it
passes over in silence.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
from google.protobuf.descriptor import Descriptor
from google.protobuf.message import DecodeError
from typing_extensions import override

from batchledger.formats.arrow_types import arrow_schema
from batchledger.formats.decoding.meaning import UnfitError
from batchledger.formats.decoding.protobuf.checking import MessageChecker
from batchledger.formats.decoding.protobuf.compiling import compile_files
from batchledger.formats.decoding.protobuf.fitting import plan_columns
from batchledger.formats.decoding.protobuf.gathering import ColumnGatherer, RestGatherer
from batchledger.formats.decoding.protobuf.schema import load_message, make_class
from batchledger.model.records.columns import REST, Column

NO_MESSAGE = "the record has no value"
MALFORMED = "the value is no message of Protobuf: it is cut off, or has bytes that are no field"
UNEXPLAINED = "the value is no message of Protobuf; protobuf 7 would say why"
NOT_UTF8_MESSAGE = "the value has a text that is not valid UTF-8"
TOO_DEEP_IN_PROTOBUF = "the value is nested deeper than 100 levels"
"""The runtime has this bound."""


@dataclass(frozen=True)
class ProtobufDecoder:
    """Decodes values that are one message each, without a frame; pickled to the executors.

    ``schema_text`` is the writer's ``.proto`` file. ``references`` are import paths and texts of the files that it
    imports, each after those that it imports itself; ``google/protobuf`` and ``google/type`` need none. ``message`` has
    the indexes of Confluent's frame, or a full name. The last column may be ``REST``: the fields that no other one
    declares. Raises ProtobufSchemaError if the schema is none, or if a field can never become its column.
    """

    schema_text: str
    references: tuple[tuple[str, str], ...]
    message: tuple[int, ...] | str
    columns: tuple[Column, ...]

    def __post_init__(self) -> None:
        # So that a schema that does not fit is refused before a record is read.
        _ = self._gatherers

    @override
    def __reduce__(self) -> tuple[Any, ...]:
        # What is kept in between does not pickle.
        return type(self), (self.schema_text, self.references, self.message, self.columns)

    def decode(self, values: pa.BinaryArray) -> tuple[pa.RecordBatch, np.ndarray, Mapping[int, str]]:
        """Return the rows of the records that decode, in their order; which records these are; why others do not.

        Example: three values, the second cut off, give two rows, ``[True, False, True]`` and a reason by 1.
        """
        return self.decode_noticing(values)[:3]

    def decode_noticing(
        self, values: pa.BinaryArray
    ) -> tuple[pa.RecordBatch, np.ndarray, Mapping[int, str], Mapping[int, frozenset[str]]]:
        """Return the same, and by place the fields that a value has and the schema does not know, also within.

        Example: ``field number 7``, ``customer.field number 7``, ``lines[].field number 7``.
        """
        messages, places, errors, unknown = self._read_all(values)
        columns = []
        for gatherer in self._gatherers:
            column, misfits = gatherer.gather(messages)
            columns.append(column)
            for number, why in misfits.items():
                errors.setdefault(places[number], why)
        is_decoded = np.ones(len(values), bool)
        is_decoded[list(errors)] = False
        if columns:
            rows = pa.RecordBatch.from_arrays(columns, schema=self._arrow)
            kept = is_decoded[places]
            return (rows if kept.all() else rows.filter(pa.array(kept))), is_decoded, errors, unknown
        return pa.RecordBatch.from_arrays([], schema=self._arrow), is_decoded, errors, unknown

    def _read_all(
        self, values: pa.BinaryArray
    ) -> tuple[list[Any], list[int], dict[int, str], dict[int, frozenset[str]]]:
        """Return the messages that are well formed, their places, why others are not, and unknown fields."""
        read, look = self._read, self._checker.look
        messages, places, errors, unknown = [], [], {}, {}
        for place, value in enumerate(values.to_pylist()):
            if value is None:
                errors[place] = NO_MESSAGE
                continue
            try:
                message = read(value)
                names = look(message)
            except DecodeError as error:
                errors[place] = _explain(error)
            except UnfitError as error:
                errors[place] = str(error)
            else:
                messages.append(message)
                places.append(place)
                if names:
                    unknown[place] = names
        return messages, places, errors, unknown

    @cached_property
    def _files(self) -> bytes:
        return compile_files(self.schema_text, self.references)

    @cached_property
    def _message(self) -> Descriptor:
        return load_message(self._files, self.message)

    @cached_property
    def _read(self) -> Callable[[bytes], Any]:
        read: Callable[[bytes], Any] = make_class(self._message).FromString
        return read

    @cached_property
    def _checker(self) -> MessageChecker:
        return MessageChecker(self._message, self._files)

    @cached_property
    def _gatherers(self) -> tuple[ColumnGatherer | RestGatherer, ...]:
        own = tuple(each for each in self.columns if each != REST)
        gatherers = map(ColumnGatherer, plan_columns(self._message, own))
        return (*gatherers, RestGatherer(self._message, own)) if REST in self.columns else tuple(gatherers)

    @cached_property
    def _arrow(self) -> pa.Schema:
        return arrow_schema(self.columns)


def _explain(error: DecodeError) -> str:
    """Return what the runtime has found. Its words are a part of no promise, so that others mean malformed bytes."""
    _, _, text = str(error).partition(": ")
    if "UTF-8" in text:
        return NOT_UTF8_MESSAGE
    if "MaxDepth" in text:
        return TOO_DEEP_IN_PROTOBUF
    return MALFORMED if text else UNEXPLAINED
