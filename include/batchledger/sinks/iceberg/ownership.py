"""A table belongs to one pipeline of one ledger: the tags and snapshots of the newest batches say to which."""

from collections.abc import Callable, Mapping
from datetime import datetime

from pyiceberg.table import Table

from batchledger.model.errors import TargetChangedError
from batchledger.sinks.iceberg.commits import BATCH_PROPERTY, PLANNED_PROPERTY, find_newest, find_tags


def require_own(table: Table, name: str, pipeline: str, knows: Callable[[int, datetime], bool]) -> None:
    """Raise TargetChangedError when another pipeline publishes to the table, or another ledger: see the port."""
    tags = find_tags(table)
    for tag, owner in tags.items():
        # Each pipeline would remove the tags of the other. One that was renamed knows the batches of its former name.
        if owner not in (None, pipeline) and not _is_known(table, tag, knows):
            raise TargetChangedError(
                f"Table {name} belongs to another pipeline, {owner}. {pipeline} wrote nothing.",
                why=f"Its newest batch is tagged {tag} there.",
                advice=f"Name another table in sink.table.\nOr, if {owner} is gone for good, remove the tag {tag}.",
                subject=name,
                pipeline=pipeline,
                owner=owner,
            )
    newest = find_newest(table, pipeline)
    if newest is not None and not knows(*newest):
        raise TargetChangedError(
            f"The newest batch of pipeline {pipeline} in table {name} is not in this ledger. Nothing was written.",
            why=f"It is batch {newest[0]}, planned {newest[1]}. Another ledger writes there with the same "
            "pipeline name, or this ledger is older than the table, and would write its records once more.",
            advice="Give another ledger's pipeline another name and table, or restore a newer ledger.\n"
            "Or go on under a new pipeline name, move its position behind what is in the table (batchledger "
            f"skip), and remove the tags of the old one{': ' if tags else ''}{', '.join(sorted(tags))}.",
            subject=name,
            pipeline=pipeline,
        )


def _is_known(table: Table, tag: str, knows: Callable[[int, datetime], bool]) -> bool:
    snapshot = table.metadata.snapshot_by_name(tag)
    noted: Mapping[str, str] = snapshot.summary.additional_properties if snapshot and snapshot.summary else {}
    try:
        return knows(int(noted[BATCH_PROPERTY]), datetime.fromisoformat(noted[PLANNED_PROPERTY]))
    except (KeyError, ValueError):
        # The properties are written by hand, or by another program.
        return False
