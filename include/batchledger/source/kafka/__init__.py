"""Kafka: client options, what the log holds, and how it is read and written."""
