"""The target of a pipeline as an asset of Airflow, by its section of the file as it is written.

A DAG of one's own needs no more of a file than this, and Airflow reads DAG files again and again: the models of the
kinds would take it twice as long as all else.
"""

from collections.abc import Callable, Mapping
from typing import Any

from batchledger.sinks.iceberg import alias as iceberg
from batchledger.sinks.table import alias as table
from batchledger.sinks.topic import alias as topic

CONNECTION = topic.CONNECTION
"""The connection of Kafka that a pipeline reads from if its file names none."""
_NAME_BY_TYPE: Mapping[str, Callable[[Mapping[str, Any]], str]] = {
    "postgres": table.name_alias,
    "kafka": topic.name_alias,
    "iceberg": iceberg.name_alias,
}


def name_target(section: Mapping[str, Any]) -> str:
    """Return the alias of a section ``sink``. Raises KeyError if it lacks something, or has an unknown type."""
    return _NAME_BY_TYPE[section.get("type", "postgres")](section)


def name_topic(source: Mapping[str, Any]) -> str:
    """Return the alias of a topic that a pipeline reads, as a pipeline that writes it has it."""
    return topic.name_alias(source)
