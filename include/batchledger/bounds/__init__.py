"""Bounds on what is outside: how long a call may take, how much it may answer, what a process may have."""
