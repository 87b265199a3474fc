"""What becomes of rows beside those that are there: one row a key, what a publication would change."""
