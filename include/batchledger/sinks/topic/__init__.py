"""A topic that batches are published to: one transaction a batch, and how its outcome is found."""
