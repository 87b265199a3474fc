"""The headers of a record, as the text that ``RECORD_SCHEMA`` has of them."""

import base64
import json
from collections.abc import Mapping, Sequence


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
