"""What a topic can do. Its readers have seen the records, which stay."""

from batchledger.model.capabilities import Capabilities, Inability

CAPABILITIES = Capabilities(
    shares_transaction=False,
    no_emptying=Inability(
        "The topic of {pipeline} cannot be emptied: its readers have seen the records.",
        advice="Rewind without emptying it: what is read again is produced again.",
    ),
    no_erasing=Inability(
        "Records of {target} cannot be erased: its readers have seen them. Nothing was erased.",
        why="Kafka removes records by retention, or by compaction after a tombstone of their key.",
        advice="Let Kafka remove them; see the documentation: guides/erasure",
    ),
)
