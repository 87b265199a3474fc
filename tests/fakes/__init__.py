"""In-memory implementations of the ports: small, real in what they refuse, without any service."""
