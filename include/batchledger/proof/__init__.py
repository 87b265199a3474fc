"""What may be claimed of a history: whether ledger and target agree, what is covered. Pure."""
