"""A table of an Iceberg catalog that batches are published to, by PyIceberg."""
