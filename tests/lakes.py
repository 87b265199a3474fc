"""What a reader sees of an Iceberg table that a sink has written to."""

from collections.abc import Mapping
from typing import Any

from pyiceberg.exceptions import NoSuchTableError

from batchledger.iceberg.catalog import LakeCatalog


def read_lake(catalog: LakeCatalog, identifier: tuple[str, ...]) -> list[Mapping[str, Any]]:
    """The rows of the table; none when there is no such table. Kafka's partition has the name that it has elsewhere."""
    try:
        rows = catalog.opened.load_table(identifier).scan().to_arrow().to_pylist()
    except NoSuchTableError:
        return []
    finally:
        catalog.rest()
    return [{("_partition" if name == "_kafka_partition" else name): row[name] for name in row} for row in rows]
