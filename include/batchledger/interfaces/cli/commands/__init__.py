"""The commands: each reads what a person wrote, asks for it to be done, and shows the result."""
