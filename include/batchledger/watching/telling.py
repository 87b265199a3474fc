"""Looks at a table, and tells people what that has begun or ended: for Airflow and the command line."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime

from batchledger.config.watch_file import WatchConfig
from batchledger.ledger.watches import WatchStore
from batchledger.looking import watch_ledger_dsn
from batchledger.model.errors import BatchledgerError, LookOvertakenError
from batchledger.monitoring import alerting
from batchledger.monitoring.watched_tables import end_all, find_conditions, find_unreachable
from batchledger.proof.watching import TableLook
from batchledger.watching.building import build_watch
from batchledger.watching.look import look
from batchledger.wiring import build_alerting_of

logger = logging.getLogger(__name__)


def look_and_tell(
    config: WatchConfig,
    *,
    everything: bool = False,
    run: str | None = None,
    tell: Callable[[str], None] = lambda _: None,
) -> TableLook:
    """Look once, now, store it, then send which incidents have begun and which are over.

    ``everything`` proves again what is proved, ``run`` is the run of Airflow that looks, ``tell`` as for a watch.
    Raises what ``look`` raises, after the alerts; a channel that fails raises nothing.
    """
    now = datetime.now(UTC)
    told = build_alerting_of(config.watch, watch_ledger_dsn(config), config.alerts)
    told = replace(told, links=replace(told.links, section="watches"))
    try:
        found = look(build_watch(config, tell), now, everything=everything)
    except LookOvertakenError:
        # The other look has told what it has found.
        raise
    except BatchledgerError as error:
        try:
            alerting.tell(told, find_unreachable(config.watch, error, run), now)
        except BatchledgerError as untold:
            logger.warning("%s: no alert was stored: %s", config.watch, untold.message)
        raise
    alerting.tell(told, find_conditions(found, run), now)
    return found


def forget(watch: str, dsn: str, channels: Sequence[str]) -> bool:
    """Remove what the ledger ``dsn`` has of a watch, end its incidents, tell ``channels``; return if there was any.

    A watch whose file is gone can be forgotten, too. Raises the errors of the ledger.
    """
    had = WatchStore(dsn).forget(watch)
    alerting.tell(build_alerting_of(watch, dsn, channels), end_all(watch), datetime.now(UTC))
    return had
