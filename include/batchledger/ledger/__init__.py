"""The ledger in PostgreSQL: its migrations and everything that writes it."""
