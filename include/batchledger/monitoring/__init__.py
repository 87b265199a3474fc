"""How a pipeline stands, what people are to know of it, and the audit of the ledger."""
