"""Sinks: where the rows of a batch become visible."""
