"""Reads fields of many values at once, and passes over what no column needs."""

from collections.abc import Callable, Iterator

import numpy as np

from batchledger.formats.decoding.avro import schema as avro
from batchledger.formats.decoding.avro.lanes import Lanes, Scanned, join, spread, take
from batchledger.formats.decoding.avro.projection import AvroPlan, plan_struct, without_null
from batchledger.model.records.types import (
    MOST_DIGITS,
    ArrayOf,
    ColumnType,
    MapOf,
    Nested,
    NumberType,
    Scalar,
    StructOf,
)

MOST_STEPS = 256
"""A lane with more items of an array is left to the reference: each step costs the same for one lane as for many."""

_FIXED_BYTES = {"float": 4, "double": 8}
_NULL = avro.Primitive("null")
_KEY = avro.Primitive("string")
_DIRECT_TEXTS = ("string", "int", "long")
# A column of any other type is read value by value. A nested one that Avro has as a primitive is only null.
_AT_ONCE = NumberType | Nested
_SCALARS_AT_ONCE = (Scalar.BOOLEAN, Scalar.DATE, Scalar.TIMESTAMP, Scalar.BINARY)

Scan = Callable[[Lanes], Scanned]


def is_scanned(type_: avro.Type, declared: ColumnType) -> bool:  # noqa: PLR0911 -- one a kind
    """Whether values become columns without the reference; ``type_`` is no link."""
    inner = without_null(type_)
    match inner:
        case avro.Primitive():
            if declared is Scalar.STRING:
                return inner.kind == "string" or avro.sort_of(inner) in _DIRECT_TEXTS
            is_known = isinstance(declared, _AT_ONCE) or declared in _SCALARS_AT_ONCE
            return is_known and inner.scale <= MOST_DIGITS
        case avro.Enum():
            return declared is Scalar.STRING
        case avro.Array():
            return isinstance(declared, ArrayOf)
        case avro.Map():
            return isinstance(declared, MapOf)
        case avro.RecordType():
            return isinstance(declared, StructOf)
        case _:
            return False


class Scanner:
    """Reads lanes of one schema, which is not recursive."""

    def __init__(self, schema: avro.Schema) -> None:
        self._schema = schema

    def scan_plan(self, plan: AvroPlan, lanes: Lanes, found: dict[int, Scanned]) -> None:
        """Read all fields of a record; ``found`` gets what was read, by the place of the leaf."""
        for field in plan.fields:
            starts = lanes.places
            for leaf in field.leaves:
                lanes.places = np.where(lanes.is_doubtful, lanes.ends, starts)
                found[leaf.place] = self.scan(field.type, leaf.type, lanes)
            if field.within is not None:
                lanes.places = np.where(lanes.is_doubtful, lanes.ends, starts)
                self._scan_within(field.type, field.within, lanes, found)
            elif not field.leaves:
                self.skip(field.type, lanes)

    def _scan_within(self, type_: avro.Type, plan: AvroPlan, lanes: Lanes, found: dict[int, Scanned]) -> None:
        if not isinstance(type_, avro.Union):
            self.scan_plan(plan, lanes, found)
            return
        picked, within = self._pick_valid(type_, lanes), dict[int, Scanned]()
        inner = lanes.pick(picked)
        self.scan_plan(plan, inner, within)
        lanes.put(picked, inner)
        found.update({place: spread(each, picked, len(lanes)) for place, each in within.items()})

    def scan(self, type_: avro.Type, declared: ColumnType, lanes: Lanes) -> Scanned:
        """Read values that become columns of a type."""
        if not is_scanned(type_, declared):
            starts = lanes.places
            self.skip(type_, lanes)
            return Scanned(len(lanes), (starts, np.maximum(lanes.places - starts, 0)))
        if not isinstance(type_, avro.Union):
            return self._scan_one(type_, declared, lanes)
        picked = self._pick_valid(type_, lanes)
        inner = lanes.pick(picked)
        found = self._scan_one(without_null(type_), declared, inner)
        lanes.put(picked, inner)
        return spread(found, picked, len(lanes))

    def _pick_valid(self, union: avro.Union, lanes: Lanes) -> np.ndarray:
        """Return the lanes that are not null."""
        places = lanes.read_places(len(union.branches))
        is_other = places != union.branches.index(_NULL) if _NULL in union.branches else np.ones(len(lanes), bool)
        return np.flatnonzero(is_other & ~lanes.is_doubtful)

    def _scan_one(self, type_: avro.Type, declared: ColumnType, lanes: Lanes) -> Scanned:
        match type_:
            case avro.Array() if isinstance(declared, ArrayOf):
                return self._scan_items(lambda items: (self.scan(type_.items, declared.element, items),), lanes)
            case avro.Map() if isinstance(declared, MapOf):
                value = declared.value
                return self._scan_items(
                    lambda items: (self.scan(_KEY, Scalar.STRING, items), self.scan(type_.values, value, items)), lanes
                )
            case avro.RecordType() if isinstance(declared, StructOf):
                return self._scan_struct(type_, declared, lanes)
            case avro.Enum():
                return Scanned(len(lanes), (lanes.read_places(len(type_.symbols)),))
            case avro.Primitive():
                return _scan_primitive(type_, lanes)
            case _:
                raise TypeError(type_)

    def _scan_struct(self, record: avro.RecordType, struct: StructOf, lanes: Lanes) -> Scanned:
        found: dict[int, Scanned] = {}
        self.scan_plan(plan_struct(self._schema, record, "", struct), lanes, found)
        absent = Scanned(len(lanes), is_valid=np.zeros(len(lanes), bool))
        return Scanned(len(lanes), children=tuple(found.get(place, absent) for place in range(len(struct.fields))))

    def _scan_items(self, scan: Callable[[Lanes], tuple[Scanned, ...]], lanes: Lanes) -> Scanned:
        pieces: list[tuple[Scanned, ...]] = []
        owners: list[np.ndarray] = []
        for some, items in _Items(lanes):
            pieces.append(scan(items))
            owners.append(some)
        if not pieces:
            # Reads nothing: without lanes there are columns, but no values.
            none = np.zeros(0, np.int64)
            return Scanned(len(lanes), children=scan(lanes.pick(none)), counts=np.zeros(len(lanes), np.int64))
        owner = np.concatenate(owners)
        order = np.argsort(owner, kind="stable")
        children = tuple(take(join(each), order) for each in zip(*pieces, strict=True))
        return Scanned(len(lanes), children=children, counts=np.bincount(owner, minlength=len(lanes)))

    def skip(self, type_: avro.Type, lanes: Lanes) -> None:  # noqa: C901 -- one a kind
        """Pass over values; numbers, lengths and places are checked as if they were read."""
        match type_:
            case avro.Primitive():
                _skip_primitive(type_, lanes)
            case avro.Enum():
                lanes.read_places(len(type_.symbols))
            case avro.Union():
                places = lanes.read_places(len(type_.branches))
                # Only the branches that are there: a union may have any number.
                for place in np.unique(places[~lanes.is_doubtful]).tolist():
                    picked, branch = np.flatnonzero((places == place) & ~lanes.is_doubtful), type_.branches[place]
                    if branch != _NULL:
                        inner = lanes.pick(picked)
                        self.skip(branch, inner)
                        lanes.put(picked, inner)
            case avro.RecordType():
                for field in type_.fields:
                    self.skip(field.type, lanes)
            case avro.Array():
                for _, items in _Items(lanes):
                    self.skip(type_.items, items)
            case avro.Map():
                for _, items in _Items(lanes):
                    self.skip(_KEY, items)
                    self.skip(type_.values, items)
            case _:
                raise TypeError(type_)


class _Items:
    """Yields lanes that have one more item, until none has; who gets them moves them over the item."""

    def __init__(self, lanes: Lanes) -> None:
        self._lanes = lanes
        self._left = np.zeros(len(lanes), np.int64)
        self._block_ends = np.full(len(lanes), -1)

    def __iter__(self) -> Iterator[tuple[np.ndarray, Lanes]]:
        lanes, without_block = self._lanes, np.flatnonzero(~self._lanes.is_doubtful)
        for _ in range(min(MOST_STEPS, lanes.source.steps_left)):
            if lanes.source.steps_left <= 0:
                break
            lanes.source.steps_left -= 1
            self._open_blocks(without_block)
            some = np.flatnonzero((self._left > 0) & ~lanes.is_doubtful)
            if not len(some):
                return
            items = lanes.pick(some)
            yield some, items
            lanes.put(some, items)
            self._left[some] -= 1
            without_block = self._close_blocks(some[self._left[some] == 0])
        unfinished = (self._left > 0) & ~lanes.is_doubtful
        unfinished[without_block] = True
        lanes.doubt(unfinished)

    def _open_blocks(self, some: np.ndarray) -> None:
        picked = self._lanes.pick(some)
        counts = picked.read_numbers()
        has_size = np.flatnonzero((counts < 0) & ~picked.is_doubtful)
        if len(has_size):
            sized = picked.pick(has_size)
            sizes = sized.read_lengths()
            self._block_ends[some[has_size]] = sized.places + sizes
            picked.put(has_size, sized)
        # The least number has no opposite.
        counts = np.abs(counts)
        picked.doubt(counts < 0)
        counts[picked.is_doubtful] = 0
        self._left[some] = counts
        self._lanes.put(some, picked)

    def _close_blocks(self, some: np.ndarray) -> np.ndarray:
        ends = self._block_ends[some]
        is_wrong = np.zeros(len(self._lanes), bool)
        is_wrong[some] = (ends >= 0) & (self._lanes.places[some] != ends)
        self._lanes.doubt(is_wrong)
        self._block_ends[some] = -1
        closed: np.ndarray = some[~self._lanes.is_doubtful[some]]
        return closed


def _scan_primitive(type_: avro.Primitive, lanes: Lanes) -> Scanned:  # noqa: PLR0911 -- one a kind
    size = len(lanes)
    match type_.kind:
        case "null":
            return Scanned(size, is_valid=np.zeros(size, bool))
        case "boolean":
            return Scanned(size, (_read_booleans(lanes),))
        case "int":
            return Scanned(size, (_read_ints(lanes),))
        case "long":
            return Scanned(size, (lanes.read_numbers(),))
        case "float":
            return Scanned(size, (lanes.read_words(4).astype(np.uint32).view(np.float32),))
        case "double":
            return Scanned(size, (lanes.read_words(8).view(np.float64),))
        case "fixed":
            starts = lanes.places
            lanes.skip(type_.size)
            lengths = np.where(lanes.is_doubtful, 0, type_.size)
            return Scanned(size, (starts, lengths))
        case _:
            lengths = lanes.read_lengths()
            starts = lanes.places
            lanes.places = starts + lengths
            return Scanned(size, (starts, lengths))


def _skip_primitive(type_: avro.Primitive, lanes: Lanes) -> None:
    match type_.kind:
        case "null":
            pass
        case "boolean":
            _read_booleans(lanes)
        case "int":
            _read_ints(lanes)
        case "long":
            lanes.read_numbers()
        case "bytes" | "string":
            lanes.skip(lanes.read_lengths())
        case _:
            lanes.skip(_FIXED_BYTES.get(type_.kind, type_.size))


def _read_booleans(lanes: Lanes) -> np.ndarray:
    words = lanes.read_words(1)
    lanes.doubt(words > 1)
    found: np.ndarray = words == 1
    return found


def _read_ints(lanes: Lanes) -> np.ndarray:
    numbers = lanes.read_numbers()
    lanes.doubt((numbers < -(2**31)) | (numbers >= 2**31))
    return numbers
