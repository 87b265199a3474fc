"""What people ask of the ledger: reads only. Command line, page and metrics come in by this door."""
