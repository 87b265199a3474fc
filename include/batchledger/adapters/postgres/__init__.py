"""PostgreSQL: the ledger, the staging that every sink shares, and the sinks that are written from it."""
