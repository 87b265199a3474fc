"""What the values of files and connections may be: the grammar of both, without a thought of any one pipeline."""
