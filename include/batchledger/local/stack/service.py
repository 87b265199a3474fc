"""What the supervisor knows about any service."""

import os
from collections.abc import Callable
from dataclasses import dataclass

from batchledger.local.stack.clients import without_proxy
from batchledger.local.stack.processes import Launch, ServiceRecord


@dataclass(frozen=True)
class Service:
    """One long-running process. ``prepare`` writes its files and says how to start it; it is harmless to repeat.

    If the service is silent for ``silence_seconds`` and not healthy yet, it is given up.

    ``ports`` are the names of the ports that it listens on, with the one for users first. ``is_healthy`` answers within
    seconds, and raises nothing if the service does not answer.
    """

    name: str
    ports: tuple[str, ...]
    prepare: Callable[[], Launch]
    is_healthy: Callable[[ServiceRecord], bool]
    silence_seconds: float = 60.0


def base_environment() -> dict[str, str]:
    """The environment of this process, with this machine exempt from any proxy."""
    return {**os.environ, **without_proxy()}
