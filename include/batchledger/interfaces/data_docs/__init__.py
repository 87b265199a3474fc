"""Data Docs: pages about batches and pipelines, made from what the ledger holds, and readable without any server."""
