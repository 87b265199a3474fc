"""Reads one Avro value strictly: every byte of it is part of what the writer's schema says, and no byte is left.

A value comes as it is written: an integer for each kind of number and for an enum, bytes for texts, a list for a record
and for an array, pairs for a map, and the place of the branch with its value for a union. Other readers of Avro are
more lenient: they take any byte for a boolean, and count a negative place from the end.
"""

import struct
from typing import Any

from batchledger.formats.decoding.avro import schema as avro
from batchledger.formats.decoding.meaning import UnfitError

MOST_LEVELS = 100
"""How deep arrays, maps and records may be nested within a value."""

MOST_EMPTY_ITEMS = 1_000
"""How many items and fields without a byte of their own all arrays of a value may have.

A few bytes ask for any number of them, and each takes memory and time.
"""

EMPTY = "the value is empty"
LEFT_OVER = "the value has bytes behind its last field"
TOO_DEEP_IN_AVRO = f"the value is nested deeper than {MOST_LEVELS} levels"
TOO_EARLY = "the value ends within field {}"

_MOST_BYTES_OF_NUMBER = 10
NUMBER_FORMS = {"float": struct.Struct("<f"), "double": struct.Struct("<d")}


class MalformedError(Exception):
    """What is wrong with the bytes of a value."""


class _EndedError(MalformedError):
    pass


class WireReader:
    """Reads values of one schema; keeps its place in the bytes at hand."""

    def __init__(self, schema: avro.Schema) -> None:
        self._schema = schema
        self._value = b""
        self._place = self._end = self._levels = self._empty_items = 0

    def read_record(self, value: bytes) -> list[Any]:
        """Return the fields of a whole value. Raises UnfitError."""
        self._begin(value, 0, len(value))
        fields = []
        for field in self._schema.root.fields:
            try:
                fields.append(self._read(field.type))
            except _EndedError:
                raise UnfitError(TOO_EARLY.format(field.name) if value else EMPTY) from None
            except MalformedError as error:
                has = "" if str(error) == TOO_DEEP_IN_AVRO else f"field {field.name} has "
                raise UnfitError(f"{has}{error}") from None
        if self._place != self._end:
            raise UnfitError(LEFT_OVER)
        return fields

    def read_part(self, value: bytes, start: int, end: int, type_: avro.Type) -> Any:
        """Return the value of a type that lies between two places. Raises MalformedError."""
        self._begin(value, start, end)
        return self._read(type_)

    def _begin(self, value: bytes, start: int, end: int) -> None:
        self._value, self._place, self._end = value, start, end
        self._levels = self._empty_items = 0

    def _read(self, type_: avro.Type) -> Any:
        match type_:
            case avro.Primitive():
                return self._read_primitive(type_)
            case avro.Union():
                branch = self._read_place(len(type_.branches), "union")
                return branch, self._read(type_.branches[branch])
            case avro.Enum():
                return self._read_place(len(type_.symbols), "enum")
            case avro.TypeLink():
                return self._read(self._schema.resolve(type_))
            case avro.RecordType() | avro.Array() | avro.Map():
                return self._read_nested(type_)

    def _read_nested(self, type_: avro.RecordType | avro.Array | avro.Map) -> list[Any]:
        self._levels += 1
        if self._levels > MOST_LEVELS:
            raise MalformedError(TOO_DEEP_IN_AVRO)
        found: list[Any] = []
        if isinstance(type_, avro.RecordType):
            start = self._place
            found.extend(self._read(field.type) for field in type_.fields)
            if self._place == start:
                self._count_empty(len(type_.fields))
        else:
            self._read_blocks(type_, found)
        self._levels -= 1
        return found

    def _read_blocks(self, type_: avro.Array | avro.Map, found: list[Any]) -> None:
        while (count := self._read_long()) != 0:
            end = None
            if count < 0:
                size = self._read_length()
                count, end = -count, self._place + size
            for _ in range(count):
                start = self._place
                if isinstance(type_, avro.Map):
                    key = self._read_bytes(self._read_length())
                    found.append((key, self._read(type_.values)))
                else:
                    found.append(self._read(type_.items))
                if self._place == start:
                    self._count_empty(1)
            if end is not None and self._place != end:
                raise MalformedError("a block of another size than it says")

    def _count_empty(self, count: int) -> None:
        self._empty_items += count
        if self._empty_items > MOST_EMPTY_ITEMS:
            raise MalformedError(f"more than {MOST_EMPTY_ITEMS} items without a byte")

    def _read_primitive(self, type_: avro.Primitive) -> Any:  # noqa: PLR0911 -- one a kind
        match type_.kind:
            case "null":
                return None
            case "boolean":
                byte = self._read_bytes(1)
                if byte not in (b"\0", b"\1"):
                    raise MalformedError("a boolean that is neither 0 nor 1")
                return byte == b"\1"
            case "int":
                number = self._read_long()
                if not -(2**31) <= number < 2**31:
                    raise MalformedError("a number of more than 32 bits")
                return number
            case "long":
                return self._read_long()
            case "float" | "double":
                form = NUMBER_FORMS[type_.kind]
                return form.unpack(self._read_bytes(form.size))[0]
            case "fixed":
                return self._read_bytes(type_.size)
            case _:
                return self._read_bytes(self._read_length())

    def _read_long(self) -> int:
        number = 0
        for count in range(_MOST_BYTES_OF_NUMBER):
            if self._place >= self._end:
                raise _EndedError
            byte = self._value[self._place]
            self._place += 1
            number |= (byte & 0x7F) << (7 * count)
            if byte < 0x80:
                if number >= 2**64:
                    break
                return (number >> 1) ^ -(number & 1)
        raise MalformedError("a number of more than 64 bits")

    def _read_length(self) -> int:
        length = self._read_long()
        if length < 0:
            raise MalformedError("a negative length")
        return length

    def _read_place(self, count: int, what: str) -> int:
        place = self._read_long()
        if not 0 <= place < count:
            raise MalformedError(f"a place that its {what} does not have")
        return place

    def _read_bytes(self, length: int) -> bytes:
        start = self._place
        if length > self._end - start:
            raise _EndedError
        self._place = start + length
        return self._value[start : self._place]
