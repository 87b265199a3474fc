"""Alembic's entry: run the numbered migrations in one transaction, one process at a time."""

from alembic import context
from sqlalchemy import text

connection = context.config.attributes["connection"]
connection.execute(text("select pg_advisory_xact_lock(hashtext('batchledger.migrate'))"))
connection.execute(text("create schema if not exists batchledger"))
context.configure(connection=connection, version_table_schema="batchledger", version_table="migration")
with context.begin_transaction():
    context.run_migrations()
