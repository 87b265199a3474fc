"""What every decoder of values returns, and how rows of several origins become one batch."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from batchledger.formats.arrow_types import arrow_schema
from batchledger.formats.decoding.meaning import UnfitError
from batchledger.model.records.columns import REST


class DecodedData(NamedTuple):
    """The rows of the records that decode, in their order; which records these are; why others do not, by place.

    ``undeclared`` are names of fields with the places of the records that have exactly these beside declared ones.
    """

    rows: pa.RecordBatch
    is_decoded: np.ndarray
    errors: Mapping[int, str]
    undeclared: Sequence[tuple[frozenset[str], np.ndarray]] = ()


def read_singly(
    rows: pa.RecordBatch, is_decoded: np.ndarray, values: pa.BinaryArray, read: Callable[[bytes], Sequence[Any]]
) -> DecodedData:
    """Read the values that are not among the rows one by one; nulls are left out. ``read`` raises UnfitError."""
    errors: dict[int, str] = {}
    found: dict[int, Sequence[Any]] = {}
    for place in np.flatnonzero(~is_decoded & values.is_valid().to_numpy(zero_copy_only=False)).tolist():
        try:
            found[place] = read(values[place].as_py())
        except UnfitError as error:
            errors[place] = str(error)
    if not found:
        return DecodedData(rows, is_decoded, errors)
    by_column = list(zip(*found.values(), strict=True))
    singles = [pa.array(each, field.type) for each, field in zip(by_column, rows.schema, strict=True)]
    both = pa.concat_batches([rows, pa.RecordBatch.from_arrays(singles, schema=rows.schema)])
    order = np.argsort(np.concatenate([np.flatnonzero(is_decoded), list(found)]), kind="stable")
    is_decoded = is_decoded.copy()
    is_decoded[list(found)] = True
    return DecodedData(both.take(pa.array(order)), is_decoded, errors)


def keep_rest(
    data: DecodedData, values: pa.BinaryArray, places: Iterable[int], read: Callable[[bytes], str | None]
) -> DecodedData:
    """Return the same with the column ``REST``: what ``read`` leaves of values at these places, null elsewhere.

    A record whose rest cannot be kept does not decode. ``read`` raises UnfitError.
    """
    texts: dict[int, str | None] = {}
    misfits: dict[int, str] = {}
    for place in places:
        try:
            texts[place] = read(values[place].as_py())
        except UnfitError as error:
            misfits[place] = str(error)
    decoded = np.flatnonzero(data.is_decoded)
    rest = pa.array(map(texts.get, decoded.tolist()), pa.string()) if texts else pa.nulls(len(decoded), pa.string())
    own = data.rows.select([each for each in data.rows.schema.names if each != REST.name])
    schema = own.schema.append(arrow_schema([REST]).field(0))
    rows = pa.RecordBatch.from_arrays([*own.columns, rest], schema=schema)
    if not misfits:
        return data._replace(rows=rows)
    is_kept = data.is_decoded.copy()
    is_kept[list(misfits)] = False
    kept = rows.filter(pa.array(is_kept[data.is_decoded]))
    return DecodedData(kept, is_kept, {**data.errors, **misfits}, data.undeclared)
