"""Proves tables that others wrote: the offsets of a topic on one side, rows with their coordinates on the other."""
