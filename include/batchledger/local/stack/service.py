"""What the supervisor knows about a service, whichever it is."""

import os
from collections.abc import Callable
from dataclasses import dataclass

from batchledger.local.stack.clients import without_proxy
from batchledger.local.stack.processes import Launch, ServiceRecord


@dataclass(frozen=True)
class Service:
    """One long-running process. ``prepare`` writes its files and says how to start it; it is harmless to repeat.

    The service is given up when it has said nothing for ``silence_seconds`` and does not get healthy.

    ``ports`` are the names of the ports that it listens on, the first one is the one that users meet. ``is_healthy``
    answers within seconds, and raises nothing for a service that does not answer.
    """

    name: str
    ports: tuple[str, ...]
    prepare: Callable[[], Launch]
    is_healthy: Callable[[ServiceRecord], bool]
    silence_seconds: float = 60.0


def base_environment() -> dict[str, str]:
    """The environment of this process, with this machine exempt from any proxy."""
    return {**os.environ, **without_proxy()}
