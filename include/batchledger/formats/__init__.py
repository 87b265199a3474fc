"""Bytes to rows and rows to bytes. Formats know records and column types, never a batch."""
