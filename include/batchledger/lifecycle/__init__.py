"""The order of everything that happens to a batch: plan, stage, audit, publish, and what people decide."""
