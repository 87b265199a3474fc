"""The ledger in PostgreSQL: migrations, the adapter of the Ledger port, and what people ask of the history."""
