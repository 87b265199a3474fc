"""How long to wait for a start: as long as the service shows that it works. Pure.

A broker that was killed reads its whole log again, PostgreSQL its WAL, and the time depends on the amount. So the
bound is on silence. The bound on the whole start only ends a service that repeats itself for ever.
"""

from dataclasses import dataclass, replace
from typing import Self

LONGEST_SECONDS = 3600.0
_TELL_SECONDS = 10.0
_LONG_SECONDS = 60.0


@dataclass(frozen=True)
class StartPatience:
    """A wait for a start. ``heard`` is a number that changes while the service works, such as the size of its log.

    Example: with 60 s of patience, a service that began at 0 and was last heard at 50 is given up after 110.
    """

    silence_seconds: float
    began: float
    heard: int
    heard_at: float
    told_at: float

    @classmethod
    def begin(cls, silence_seconds: float, now: float, heard: int) -> Self:
        """The beginning of the wait."""
        return cls(silence_seconds, now, heard, now, now)

    def listen(self, now: float, heard: int) -> Self:
        """Return the wait after another look."""
        return self if heard == self.heard else replace(self, heard=heard, heard_at=now)

    def is_over(self, now: float) -> bool:
        """Whether the service is given up."""
        return now - self.heard_at > self.silence_seconds or now - self.began > LONGEST_SECONDS

    def should_tell(self, now: float) -> bool:
        """Whether it is time to show that the start still goes on."""
        return now - self.told_at >= _TELL_SECONDS

    def tell(self, now: float) -> Self:
        """Return the wait after the message was shown."""
        return replace(self, told_at=now)

    def describe(self, service: str, now: float, error: str, last_line: str) -> str:
        """Say that the start still goes on; quote the log only if a line says ``error``, or if the start takes long.

        Most of what a service logs at its start is no news: warnings, settings, a banner.
        """
        waited = f"({now - self.began:.0f} s)"
        if error or now - self.began >= _LONG_SECONDS:
            return f"{service} is still starting {waited}; its log: {error or last_line}"
        return f"{service} is still starting {waited}"
