"""How a topic is named as an asset of Airflow, by the pipeline file alone."""

from collections.abc import Mapping
from typing import Any

CONNECTION = "kafka_default"


def name_alias(section: Mapping[str, Any]) -> str:
    """Return connection, slash, topic; a pipeline that reads the topic has the same."""
    return f"{section.get('connection', CONNECTION)}/{section['topic']}"
