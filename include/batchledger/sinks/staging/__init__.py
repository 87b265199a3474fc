"""Staging: where the rows of an attempt wait until they are published, and what is known of them meanwhile."""
