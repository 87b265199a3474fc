"""Sample records to try pipelines with: the demo's flights, and made-up ones for any declared schema."""
