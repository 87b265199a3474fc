"""Bounds that the kernel keeps for this process. Imports nothing else: a process may begin with it."""

import resource


def limit_process(what: int, wanted: int) -> None:
    """Bound what this process may take, such as ``RLIMIT_AS``; never above what it may already."""
    most = resource.getrlimit(what)[1]
    resource.setrlimit(what, (wanted if most == resource.RLIM_INFINITY else min(wanted, most), most))
