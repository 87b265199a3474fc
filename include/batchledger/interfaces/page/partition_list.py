"""The partitions of a pipeline: filtered and sorted over all of them, before one page of ribbons is drawn. Pure."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from batchledger.interfaces.page.ordering import SortColumn, SortOrder, arrange, holds_text
from batchledger.model.batch import PartitionHealth, PartitionLog, Position

PARTITIONS_ON_PAGE = 25
# A filter of fewer lines would take more room than it saves.
FILTERED_FROM = 8


class PartitionColumn(SortColumn):
    """The columns of the list."""

    PARTITION = "partition"
    POSITION = "position", True
    END = "end", True
    UNREAD = "unread", True
    EXPIRES = "expires"


BY_NUMBER = SortOrder(PartitionColumn.PARTITION)


@dataclass(frozen=True, slots=True)
class PartitionQuery:
    """Which partitions an address asks for."""

    text: str = ""
    order: SortOrder[PartitionColumn] = BY_NUMBER
    page: int = 1


@dataclass(frozen=True, slots=True)
class PartitionLine:
    """What a partition is sorted by; ``log`` and ``health`` are None if Kafka does not say."""

    position: Position
    log: PartitionLog | None
    health: PartitionHealth | None

    @property
    def unread(self) -> int | None:
        """How many readable offsets wait."""
        return max(0, self.log.end - self.position.next_offset) if self.log else None


def arrange_partitions(lines: Iterable[PartitionLine], query: PartitionQuery) -> list[Position]:
    """Return the positions whose partition holds the text, in an order. The lines come by topic and number."""
    values: Mapping[PartitionColumn, Callable[[PartitionLine], Any]] = {
        PartitionColumn.PARTITION: lambda each: (each.position.partition.topic, each.position.partition.partition),
        PartitionColumn.POSITION: lambda each: each.position.next_offset,
        PartitionColumn.END: lambda each: each.log.end if each.log else None,
        PartitionColumn.UNREAD: lambda each: each.unread,
        PartitionColumn.EXPIRES: lambda each: each.health.expires_at if each.health else None,
    }
    chosen = [each for each in lines if holds_text(query.text, str(each.position.partition))]
    return [each.position for each in arrange(chosen, query.order, values, BY_NUMBER)]
