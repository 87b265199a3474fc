"""The schemas of records, one a row: as they were read, and as they go to the ledger if they become no row."""

import pyarrow as pa

RECORD_SCHEMA = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp_ms", pa.int64()),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", pa.string()),
    ]
)
"""``timestamp_ms`` is the number that Kafka has, for any moment; -1 or null is a record without a timestamp.

``key`` and ``value`` are the record's bytes; ``headers`` is JSON text, a list of {key, value}, values in base64; null
if there are none.
"""

UNREADABLE_NAME = "(a name that is not UTF-8)"
"""Stands for all headers of a record: the client gives none of them if it cannot read one."""

QUARANTINE_SCHEMA = RECORD_SCHEMA.append(pa.field("error", pa.string()))
"""A record that becomes no row, and why."""
