"""Sample records to try pipelines with, and the producers that write them under each guarantee."""
