"""Records into columns: what a JSON value means, one record at a time and in blocks. Knows no Spark and no Kafka."""
