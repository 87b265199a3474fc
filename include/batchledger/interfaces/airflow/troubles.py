"""What is wrong while looks go on: said often enough to be found, and seldom enough to be read."""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field

from batchledger.model.counting import describe_count

AGAIN_SECONDS = 600.0
"""How often a trouble that lasts is said."""
TEXTS_KNOWN = 10
"""So many troubles with one source are kept apart: a text may hold a number that is another one each time."""
_OTHERS = ""


@dataclass
class _Said:
    """When a trouble was last said, in seconds of the clock, and how often it has come back since."""

    at: float
    times: int = 0


@dataclass
class Troubles:
    """Logs each trouble with a source once, and again after ``AGAIN_SECONDS``, with how often it has come meanwhile.

    A trouble is a text, so two that take turns are said once each. When ``end`` has said that a source is well, its
    next trouble is said at once. ``clock`` is monotonic, in seconds.
    """

    logger: logging.Logger
    clock: Callable[[], float]
    _said: dict[str, dict[str, _Said]] = field(default_factory=dict)

    def tell(self, source: str, trouble: str, unforeseen: Exception | None = None) -> None:
        """Log what is wrong with ``source``; an error that was not foreseen as an error, with its traceback."""
        known, now = self._said.setdefault(source, {}), self.clock()
        kind = trouble if trouble in known or len(known) < TEXTS_KNOWN else _OTHERS
        said = known.get(kind)
        if said is not None and now < said.at + AGAIN_SECONDS:
            said.times += 1
            return
        level = logging.WARNING if unforeseen is None else logging.ERROR
        again = "" if said is None else f" ({describe_count(said.times + 1, 'time')} since this was said last)"
        self.logger.log(level, "no run is started for now%s: %s", again, trouble, exc_info=unforeseen)
        known[kind] = _Said(now)

    def end(self, source: str) -> None:
        """Note that nothing is wrong with ``source``."""
        self._said.pop(source, None)
