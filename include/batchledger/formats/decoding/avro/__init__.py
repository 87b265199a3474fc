"""Avro values into columns, by the schema of their writer. Knows no registry, no Spark and no Kafka."""
