"""Exactly-once at batch granularity, from Kafka offset ranges into tables and topics."""
