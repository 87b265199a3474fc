"""What an Iceberg table can do. It commits by itself, and its snapshots keep what was deleted."""

from batchledger.model.capabilities import Capabilities, Inability

CAPABILITIES = Capabilities(
    shares_transaction=False,
    no_emptying=Inability(
        "{target} of {pipeline} cannot be emptied together with the ledger.",
        why="It commits by itself.",
        advice="Rewind without --truncate: rows that are read again take the place of the published ones.",
    ),
    no_erasing=Inability(
        "Rows of {target} cannot be erased together with the ledger. Nothing was erased.",
        why="An Iceberg table commits by itself, and its snapshots keep what was deleted.",
        advice="Delete them with Spark and expire the snapshots; see the documentation: guides/erasure",
    ),
)
