"""What a reader sees of an Iceberg table that a sink has written to."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.table import Table

from batchledger.sinks.iceberg.catalog import LakeCatalog
from batchledger.sinks.iceberg.projection import keep_nulls


def read_lake(catalog: LakeCatalog, identifier: tuple[str, ...]) -> list[Mapping[str, Any]]:
    """The rows of the table; none when there is no such table. Kafka's partition has the name that it has elsewhere."""
    # PyIceberg reads a list that is null as an empty one.
    keep_nulls()
    try:
        with _load(catalog, identifier) as table:
            rows = table.scan().to_arrow().to_pylist()
    except NoSuchTableError:
        return []
    return [{("_partition" if name == "_kafka_partition" else name): row[name] for name in row} for row in rows]


def list_columns(catalog: LakeCatalog, identifier: tuple[str, ...]) -> Mapping[str, str]:
    """Type by column of the table."""
    with _load(catalog, identifier) as table:
        return {each.name: str(each.field_type) for each in table.schema().fields}


def list_files(catalog: LakeCatalog, identifier: tuple[str, ...]) -> list[str]:
    with _load(catalog, identifier) as table:
        return [each.file.file_path for each in table.scan().plan_files()]


@contextmanager
def _load(catalog: LakeCatalog, identifier: tuple[str, ...]) -> Iterator[Table]:
    try:
        yield catalog.opened.load_table(identifier)
    finally:
        catalog.rest()
