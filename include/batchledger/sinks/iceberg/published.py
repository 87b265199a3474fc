"""Where the rows of a published batch are in an Iceberg table, for people and programs that read them."""

from batchledger.model.batch import Batch
from batchledger.sinks.iceberg.catalog import LakeCatalog, translate_errors
from batchledger.sinks.iceberg.snapshots import find_committed


def find_published(catalog: LakeCatalog, identifier: tuple[str, ...], batch: Batch) -> tuple[str, int | None]:
    """Return the location of the table, and the snapshot with which a batch was committed; None if it has expired.

    Raises ServiceUnavailableError when the catalog does not answer, and TargetChangedError when the table is gone.
    """
    with translate_errors(f"look for {batch.label}", ".".join((catalog.name, *identifier))):
        try:
            table = catalog.opened.load_table(identifier)
            committed = find_committed(table, batch)
            return table.location(), None if committed is None else committed.snapshot_id
        finally:
            catalog.rest()
