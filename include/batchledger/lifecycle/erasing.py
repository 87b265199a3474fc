"""Erases the rows of a key on a person's order, with what quarantine and the ledger hold of them.

The effect says how many, and names the columns of the key; no part of the record holds a value. ``verify`` stays exact:
the ledger counts what is erased of each range. A later publication of the same records makes no row of them.
"""

import logging

from batchledger.lifecycle.decisions import log_decided, require_reason
from batchledger.lifecycle.platform import Platform
from batchledger.model.batch import Decided, Decision
from batchledger.model.capabilities import require_able
from batchledger.model.erasure import ErasureKey

logger = logging.getLogger(__name__)


def erase(platform: Platform, key: ErasureKey, decision: Decision) -> Decided:
    """Erase a key. The ``warning`` names what a person has to look at: records of quarantine, staging of other roles.

    Raises DecisionRefusedError if the reason names a value, a batch is open, rows of the target cannot be erased, or
    the table lacks a column of the key; TargetChangedError if the table is not the pipeline's own.
    """
    require_reason(decision)
    key.require_unnamed(decision.reason)
    name, sink = platform.rules.name, platform.sink
    require_able(sink.capabilities.no_erasing, sink.name, name)
    decided = platform.decisions.erase(name, key, decision, lambda access: sink.erase(access, key))
    if decided.warning and platform.decisions.is_kept:
        logger.warning("erase of %s: %s.", name, decided.warning)
    return log_decided(platform.decisions, decided)
