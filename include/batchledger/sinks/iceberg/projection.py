"""Keeps nulls that PyIceberg would make empty: an array of structs, or a map to structs, that is null in a row.

PyIceberg gives every batch that it writes or reads the schema of the table. It makes such arrays anew from their
offsets alone, without their nulls, so a null would be stored as an array without elements. A test fails when PyIceberg
does it no more, and this module can go.
"""

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.io import pyarrow as pyiceberg_arrow
from pyiceberg.io.pyarrow import ArrowProjectionVisitor
from typing_extensions import override


class NullKeepingProjection(ArrowProjectionVisitor):
    """Projects arrays as PyIceberg does, with their nulls."""

    @override
    def list(self, list_type: Any, list_array: pa.Array | None, value_array: pa.Array | None) -> pa.Array | None:
        return _keep_nulls(list_array, super().list(list_type, list_array, value_array))

    @override
    def map(
        self, map_type: Any, map_array: pa.Array | None, key_result: pa.Array | None, value_result: pa.Array | None
    ) -> pa.Array | None:
        return _keep_nulls(map_array, super().map(map_type, map_array, key_result, value_result))


def _keep_nulls(before: pa.Array | None, after: pa.Array | None) -> pa.Array | None:
    if before is None or after is None or before.null_count == after.null_count:
        return after
    # Arrow's own functions would forget the numbers of the fields within. Copies begin at the first value of a part.
    is_valid = pa.array(before.is_valid().to_numpy(zero_copy_only=False))
    offsets = pc.add(after.offsets, 0)
    return pa.Array.from_buffers(
        after.type, len(after), [is_valid.buffers()[1], offsets.buffers()[1]], children=[after.values]
    )


def keep_nulls() -> None:
    """Let PyIceberg use this projection in this process."""
    pyiceberg_arrow.ArrowProjectionVisitor = NullKeepingProjection  # type: ignore[misc]
