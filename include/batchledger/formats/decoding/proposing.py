"""What a writer's schema says of values, in whatever language it is written: columns that would hold them all.

A schema names a type once and uses it often, so a column of 20 levels may consist of millions of types: both functions
look into no record within itself, and a proposal has bounds.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from batchledger.formats.decoding.nested import Declared
from batchledger.model.records.columns import Column
from batchledger.model.records.types import (
    MOST_TYPES_DEEP,
    ArrayOf,
    ColumnType,
    Json,
    MapOf,
    StructField,
    StructOf,
)

MOST_TYPES = 1_000
"""How many types a column that is proposed may consist of; a person would not declare more."""


@dataclass(frozen=True)
class Shape:
    """What a schema says of one value. ``type`` holds it, unless there is something within.

    ``fields`` gives the fields of a record, whose ``name`` no other record of the schema has. ``each`` gives what is in
    an array, or in a map if it ``is_map``.
    """

    type: ColumnType = Json.JSONB
    fields: "Callable[[], Iterable[tuple[str, Shape]]] | None" = None
    name: object = None
    each: "Callable[[], Shape] | None" = None
    is_map: bool = False


class _TooManyError(Exception):
    pass


def propose_columns(record: Shape) -> tuple[Column, ...]:
    """Return a column for each field of a record, in their order.

    What only JSON holds is ``jsonb``, also within other types, where no pipeline can declare it. A column of more than
    ``MOST_TYPES`` is ``jsonb``, too.
    """
    fields = record.fields() if record.fields is not None else ()
    return tuple(Column(name, _propose(each, (record.name,))) for name, each in fields)


def _propose(shape: Shape, outer: tuple[object, ...]) -> ColumnType:
    left = MOST_TYPES

    def propose(shape: Shape, outer: tuple[object, ...], levels: int) -> ColumnType:
        nonlocal left
        left -= 1
        if left < 0:
            raise _TooManyError
        if not levels:
            return Json.JSONB
        if shape.each is not None:
            within = propose(shape.each(), outer, levels - 1)
            return MapOf(within) if shape.is_map else ArrayOf(within)
        if shape.fields is None:
            return shape.type
        fields = () if shape.name in outer else shape.fields()
        types = [StructField(name, propose(each, (*outer, shape.name), levels - 1)) for name, each in fields]
        return StructOf(tuple(types)) if types else Json.JSONB

    try:
        return propose(shape, outer, MOST_TYPES_DEEP)
    except _TooManyError:
        return Json.JSONB


def list_undeclared(shape: Shape, declared: Declared, place: str = "", outer: tuple[object, ...] = ()) -> Iterator[str]:
    """Yield the fields that are not declared, also within: ``customer.name``. A value of several types has none."""
    if shape.each is not None and declared.each is not None:
        yield from list_undeclared(shape.each(), declared.each, f"{place}[]", outer)
    elif shape.fields is not None and declared.fields is not None and shape.name not in outer:
        for name, inner in shape.fields():
            path = f"{place}.{name}" if place else name
            if name not in declared.fields:
                yield path
            elif (within := declared.fields[name]) is not None:
                yield from list_undeclared(inner, within, path, (*outer, shape.name))
