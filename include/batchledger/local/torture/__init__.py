"""Proof by force: real services are killed, paused and cut off at random, then the log is compared with the target."""
