"""Timestamps of quarantined records as Kafka has them; the statements are in the SQL file beside this one."""

from pathlib import Path
from typing import Any

from alembic import op

revision = "0013"
down_revision = "0012"


def upgrade() -> None:
    """Add the number."""
    # Through psycopg itself: one round trip for all statements, and no reading of ":name" or "%" in them.
    connection: Any = op.get_bind().connection.driver_connection
    connection.execute(Path(__file__).with_suffix(".sql").read_text(encoding="utf-8"))
