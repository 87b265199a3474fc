"""Turns rows into the keys and values of records."""
