"""Where records come from: Kafka, read by tasks of Spark."""
