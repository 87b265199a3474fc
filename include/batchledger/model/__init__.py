"""Values and their algebra. Standard library only."""
