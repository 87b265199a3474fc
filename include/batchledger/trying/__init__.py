"""What a pipeline makes of records of a file, by the code that stages and audits a batch, without any service."""
