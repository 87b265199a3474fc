"""The checks of a look at a table that others write, judged by Great Expectations."""

from batchledger.checks.ledger import judge
from batchledger.model.checks import CheckResult
from batchledger.monitoring.watched_tables import ask_look
from batchledger.proof.watching import TableLook


def judge_look(look: TableLook) -> list[CheckResult]:
    """Return the result of each check: no gaps, no duplicates, no wrong rows, freshness, volume.

    A look says all that they ask, so the same look always has the same results, and none is stored beside it.
    """
    return judge(ask_look(look))
