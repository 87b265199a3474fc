"""Sessions and transactions of PostgreSQL, for the ledger and for what is written beside it."""
