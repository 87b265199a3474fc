"""Exactly-once at batch granularity, from Kafka offset ranges into tables and topics."""

DISTRIBUTION = "airflow-provider-batchledger"
"""What pip calls this package. Another project has the name batchledger on PyPI."""
