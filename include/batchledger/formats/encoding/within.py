"""What arrays and maps hold within, if they are a part of longer ones."""

import pyarrow as pa
import pyarrow.compute as pc


def reached(values: pa.Array, within: pa.Array) -> pa.Array:
    """Return what a part of a longer array holds of the values within."""
    first, last = values.offsets[0].as_py(), values.offsets[-1].as_py()
    return within.slice(first, last - first)


def group(values: pa.Array, within: pa.Array) -> pa.ListArray:
    """Return what was made of the values that are ``reached``, for each array or map."""
    return pa.ListArray.from_arrays(pc.subtract(values.offsets, values.offsets[0]).cast(pa.int32()), within)
