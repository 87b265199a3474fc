"""What Prometheus reads of the pipelines, and the rules and the board that come with it."""
