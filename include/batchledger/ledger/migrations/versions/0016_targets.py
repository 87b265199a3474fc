"""Targets that were restored, and how keys are written; the statements are in the SQL file beside this one."""

from pathlib import Path
from typing import Any

from alembic import op

revision = "0016"
down_revision = "0015"


def upgrade() -> None:
    """Say in which database a table has its oid, and make room for the types of keys."""
    # Through psycopg itself: one round trip for all statements, and no reading of ":name" or "%" in them.
    connection: Any = op.get_bind().connection.driver_connection
    connection.execute(Path(__file__).with_suffix(".sql").read_text(encoding="utf-8"))
