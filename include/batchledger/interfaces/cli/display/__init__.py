"""What the commands print: a table for people, or one JSON document."""
