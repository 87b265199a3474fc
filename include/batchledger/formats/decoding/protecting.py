"""Hashes, masks and drops columns of rows that were just decoded. Nothing else of a row is seen before.

Nulls stay null. Hashing is one call a value: no library hashes a whole column with a secret.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from batchledger.model.hashing import make_hash
from batchledger.model.records.columns import Column
from batchledger.model.records.protection import (
    MOST_HIDDEN,
    STARS,
    ColumnProtection,
    Protections,
    without_dropped,
)

_SHOWN = 4


@dataclass(frozen=True)
class Protector:
    """Pickled to the executors, with the secret that hashes are made with."""

    protections: Protections
    secret: bytes = field(default=b"", repr=False)

    @property
    def hashed(self) -> frozenset[str]:
        """The names of the columns that are hashed."""
        return frozenset(name for name, each in self.protections.items() if each is ColumnProtection.HASH)

    def keep(self, columns: Sequence[Column]) -> tuple[Column, ...]:
        """Return the columns that ``protect`` leaves."""
        return without_dropped(columns, self.protections)

    def protect(self, columns: Sequence[Column], values: Sequence[pa.Array]) -> list[pa.Array]:
        """Return the arrays of the columns that stay, in their order."""
        kept = []
        for column, array in zip(columns, values, strict=True):
            match self.protections.get(column.name):
                case ColumnProtection.HASH:
                    kept.append(self._hash(array))
                case ColumnProtection.MASK:
                    kept.append(_mask(array))
                case ColumnProtection.DROP:
                    pass
                case None:
                    kept.append(array)
        return kept

    def _hash(self, texts: pa.StringArray) -> pa.StringArray:
        hash_text = make_hash(self.secret)
        hashed = (None if each is None else hash_text(each) for each in texts.to_pylist())
        return pa.array(hashed, pa.string(), size=len(texts))


def _mask(texts: pa.StringArray) -> pa.StringArray:
    ends = pc.binary_join_element_wise(STARS, pc.utf8_slice_codeunits(texts, -_SHOWN), "")
    masked = pc.if_else(pc.greater(pc.utf8_length(texts), MOST_HIDDEN), ends, STARS)
    return pc.if_else(texts.is_valid(), masked, pa.scalar(None, pa.string()))


NO_PROTECTION = Protector({})
