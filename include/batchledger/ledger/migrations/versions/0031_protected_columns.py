"""Protected columns: the secret that hashed them, and records without payload; the statements are in the SQL file."""

from pathlib import Path
from typing import Any

from alembic import op

revision = "0031"
down_revision = "0030"


def upgrade() -> None:
    """Add the columns."""
    # Through psycopg itself: one round trip for all statements, and no reading of ":name" or "%" in them.
    connection: Any = op.get_bind().connection.driver_connection
    connection.execute(Path(__file__).with_suffix(".sql").read_text(encoding="utf-8"))
