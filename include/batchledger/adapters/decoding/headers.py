"""The headers of a record, as the text that ``RECORD_SCHEMA`` has of them."""

import base64
import json
from collections.abc import Mapping


def last_by_name(text: str) -> Mapping[str, bytes | None]:
    """Return the last header of each name, as Kafka's own ``lastHeader``."""
    return {
        each["key"]: None if (content := each.get("value")) is None else base64.b64decode(content)
        for each in json.loads(text)
    }
