"""What enters as a file or as a connection, and leaves as frozen values."""
