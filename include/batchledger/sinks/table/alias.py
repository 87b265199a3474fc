"""How a PostgreSQL table is named as an asset of Airflow, by the pipeline file alone."""

from collections.abc import Mapping
from typing import Any

from batchledger.model.datasets import split_table

CONNECTION = "warehouse"


def name_alias(section: Mapping[str, Any]) -> str:
    """Return connection, slash, schema and table."""
    return f"{section.get('connection', CONNECTION)}/{'.'.join(split_table(section['table']))}"
