"""Decisions that need two people: what one asks for, and who confirms it; the statements are in the SQL file beside."""

from pathlib import Path
from typing import Any

from alembic import op

revision = "0030"
down_revision = "0029"


def upgrade() -> None:
    """Add the columns, the constraints and the trigger."""
    # Through psycopg itself: one round trip for all statements, and no reading of ":name" or "%" in them.
    connection: Any = op.get_bind().connection.driver_connection
    connection.execute(Path(__file__).with_suffix(".sql").read_text(encoding="utf-8"))
