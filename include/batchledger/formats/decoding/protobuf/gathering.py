"""The values of one column, out of many messages at once.

Arrow takes what the runtime gives wherever it is as strict as we are. If it refuses one value, or if a value needs a
closer look, each is fitted by itself.
"""

from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from google.protobuf.descriptor import Descriptor

from batchledger.formats.arrow_types import to_arrow_type
from batchledger.formats.decoding.fitting import Fit, Leaf
from batchledger.formats.decoding.meaning import EARLIEST_MICROSECONDS, LATEST_MICROSECONDS, UnfitError
from batchledger.formats.decoding.protobuf.fitting import Get, PlannedColumn, make_fit, make_getter
from batchledger.formats.decoding.protobuf.schema import is_many, sort_of
from batchledger.formats.decoding.protobuf.texts import make_rest_writer
from batchledger.model.records.columns import REST, Column
from batchledger.model.records.types import ColumnType, DecimalOf, Epoch, Floating, Integer, Scalar

Finish = Callable[[pa.Array], pa.Array | None]
"""Makes a column of what Arrow has read; None if each value needs a look of its own."""


class ColumnGatherer:
    """Makes one column out of messages."""

    def __init__(self, planned: PlannedColumn) -> None:
        column = planned.column
        self._type = to_arrow_type(column.type)
        self._get: Get | None = None
        if planned.fields:
            field = planned.fields[-1]
            self._get = _make_path(planned)
            self._fit = make_fit(field, Leaf(0, column.name, column.type))
            self._fast = None if is_many(field) else _choose(sort_of(field), column.type)

    def gather(self, messages: list[Any]) -> tuple[pa.Array, Mapping[int, str]]:
        """Return a value a message, null if it has none or does not fit, and why those by their places do not."""
        if self._get is None:
            return pa.nulls(len(messages), self._type), {}
        values = list(map(self._get, messages))
        if self._fast is not None:
            read_as, finish = self._fast
            try:
                found = finish(pa.array(values, read_as))
            except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
                found = None
            if found is not None:
                return found, {}
        return _gather_singly(values, self._fit, self._type)


class RestGatherer:
    """Makes the column of the fields that none of the other ``columns`` declares."""

    def __init__(self, message: Descriptor, columns: Sequence[Column]) -> None:
        self._write = make_rest_writer(message, columns)
        self._type = to_arrow_type(REST.type)

    def gather(self, messages: list[Any]) -> tuple[pa.Array, Mapping[int, str]]:
        """Return the same as ``ColumnGatherer``."""
        if self._write is None:
            return pa.nulls(len(messages), self._type), {}
        return _gather_singly(list(messages), self._write, self._type)


def _gather_singly(values: list[Any], fit: Fit, type_: pa.DataType) -> tuple[pa.Array, Mapping[int, str]]:
    errors: dict[int, str] = {}
    for place, value in enumerate(values):
        if value is not None:
            try:
                values[place] = fit(value)
            except UnfitError as error:
                values[place], errors[place] = None, str(error)
    return pa.array(values, type_), errors


def _make_path(planned: PlannedColumn) -> Get:
    *outer, field = planned.fields
    if not outer:
        return make_getter(field) if field.has_presence else attrgetter(field.name)
    names, get = tuple(each.name for each in outer), make_getter(field)

    def get_within(message: Any) -> Any:
        for name in names:
            if not message.HasField(name):
                return None
            message = getattr(message, name)
        return get(message)

    return get_within


def _choose(sort: str, declared: ColumnType) -> tuple[pa.DataType, Finish] | None:
    """Return as what Arrow reads the values of a field, and what makes the column of them."""
    match sort, declared:
        case (
            ("bool", Scalar.BOOLEAN)
            | ("bytes", Scalar.BINARY)
            | ("whole" | "enum", Integer())
            | ("float", Floating())
            | ("double", Floating.DOUBLE)
        ):
            return to_arrow_type(declared), lambda found: found
        case "whole", Epoch():
            return pa.int64(), _make_epoch(declared.microseconds, to_arrow_type(declared))
        case "string", Scalar.STRING:
            return pa.string(), lambda found: None if pc.any(pc.match_substring(found, "\0")).as_py() else found
        case "string", DecimalOf(precision, scale):
            return pa.string(), _make_decimal(precision, scale)
        case _:
            return None


def _make_epoch(unit: int, type_: pa.DataType) -> Finish:
    earliest, latest = -(-EARLIEST_MICROSECONDS // unit), LATEST_MICROSECONDS // unit

    def finish(found: pa.Array) -> pa.Array | None:
        bounds = pc.min_max(found).as_py()
        if bounds["min"] is not None and not earliest <= bounds["min"] <= bounds["max"] <= latest:
            return None
        return pc.multiply(found, unit).cast(type_)

    return finish


def _make_decimal(precision: int, scale: int) -> Finish:
    # What Arrow reads exactly: no exponent, and no more places than the column has.
    whole, places = precision - scale, f"(\\.[0-9]{{1,{scale}}})?" if scale else ""
    form = f"^-?(0|[1-9][0-9]{{0,{whole - 1}}}){places}$" if whole else f"^-?0{places}$"

    def finish(found: pa.Array) -> pa.Array | None:
        is_plain = pc.all(pc.match_substring_regex(found, form), min_count=0).as_py()
        return found.cast(pa.decimal128(precision, scale)) if is_plain else None

    return finish
