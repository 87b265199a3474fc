"""How a PostgreSQL table is named as an asset of Airflow, by the pipeline file alone."""

from collections.abc import Mapping
from typing import Any

CONNECTION = "warehouse"


def name_alias(section: Mapping[str, Any]) -> str:
    """Return connection, slash, schema and table. A bare name lives in ``public``."""
    schema, _, table = section["table"].rpartition(".")
    return f"{section.get('connection', CONNECTION)}/{schema or 'public'}.{table}"
