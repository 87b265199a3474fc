"""How an Iceberg table is named as an asset of Airflow, by the pipeline file alone."""

from collections.abc import Mapping
from typing import Any

CATALOG = "lake"


def name_alias(section: Mapping[str, Any]) -> str:
    """Return catalog, slash, table."""
    return f"{section.get('catalog', CATALOG)}/{section['table']}"
