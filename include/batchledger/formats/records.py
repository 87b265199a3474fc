"""Records on their way, one a row: as they were read, and as they go to the ledger if they become no row."""

import base64
import json
from collections.abc import Mapping, Sequence

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


def write_headers(headers: Sequence[tuple[str, bytes | None]] | None) -> str | None:
    """Return the text of headers by name, None without any."""
    if not headers:
        return None
    return json.dumps(
        [
            {"key": key} if value is None else {"key": key, "value": base64.b64encode(value).decode()}
            for key, value in headers
        ]
    )


def last_by_name(text: str) -> Mapping[str, bytes | None]:
    """Return the last header of each name, as Kafka's own ``lastHeader``."""
    return {
        each["key"]: None if (content := each.get("value")) is None else base64.b64decode(content)
        for each in json.loads(text)
    }
