"""The Kafka side: client options, what the log holds, sample producers."""
