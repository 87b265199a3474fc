"""Bounds that the kernel keeps for this process. Imports nothing else: a process may begin with it."""

import resource


def limit_process(what: int, wanted: int) -> None:
    """Bound what this process may take, such as ``RLIMIT_AS``; never above what it may already."""
    now, most = resource.getrlimit(what)
    resource.setrlimit(what, (wanted if now == resource.RLIM_INFINITY else min(wanted, now), most))
