"""The form in which records that become no row travel from the reading tasks to the ledger: one record a row."""

import pyarrow as pa

QUARANTINE_SCHEMA = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", "UTC")),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", pa.string()),
        ("error", pa.string()),
    ]
)
"""``key`` and ``value`` are the record's bytes; ``headers`` is JSON text, a list of {key, value}, values in base64."""

SKIPPED_TOMBSTONE = "a tombstone, skipped"
"""In the place of an error: the record is neither a row nor undecodable, and is only counted."""
