"""The commands: each reads its arguments, calls what does the work, and shows the result."""
