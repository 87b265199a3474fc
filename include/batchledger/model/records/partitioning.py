"""How a table is partitioned: ``day(_timestamp)``, ``bucket(16, message_id)``, ``carrier``. Standard library only."""

import re
from dataclasses import dataclass

from typing_extensions import override

_TIMES = ("year", "month", "day", "hour")
_FIELD = re.compile(
    r"(?:(?P<time>year|month|day|hour)\(\s*(?P<of>\w+)\s*\)"
    r"|(?P<kind>bucket|truncate)\(\s*(?P<size>[1-9]\d{0,8})\s*,\s*(?P<by>\w+)\s*\)"
    r"|(?P<identity>\w+))",
    re.ASCII,
)


@dataclass(frozen=True, slots=True)
class PartitionField:
    """One field of a partitioning; ``transform`` as Iceberg writes it: ``identity``, ``day``, ``bucket[16]``."""

    column: str
    transform: str

    @property
    def name(self) -> str:
        """The name of the field, as Spark names it: ``_timestamp_day``, ``message_id_bucket_16``, ``carrier``."""
        if self.transform == "identity":
            return self.column
        kind, _, size = self.transform.rstrip("]").partition("[")
        return "_".join([self.column, kind, *([size] if kind == "bucket" else ["trunc"] if size else [])])

    @override
    def __str__(self) -> str:
        kind, _, size = self.transform.rstrip("]").partition("[")
        return self.column if kind == "identity" else f"{kind}({f'{size}, ' if size else ''}{self.column})"


def parse_partition(text: str) -> PartitionField:
    """Read one field. Raises ValueError with what is allowed."""
    match = _FIELD.fullmatch(text.strip())
    if match is None:
        raise ValueError(
            f"{text!r} is no partition; write a column, or {', '.join(f'{each}(column)' for each in _TIMES)}, "
            "bucket(16, column), truncate(4, column)"
        )
    if match["identity"]:
        return PartitionField(match["identity"], "identity")
    if match["time"]:
        return PartitionField(match["of"], match["time"])
    return PartitionField(match["by"], f"{match['kind']}[{match['size']}]")
