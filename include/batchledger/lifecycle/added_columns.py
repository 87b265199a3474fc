"""Columns for fields that records have brought, if the pipeline lets them (``unknown_fields: add``)."""

from collections.abc import Sequence

from batchledger.lifecycle.platform import Platform
from batchledger.model.batch import Attempt
from batchledger.model.records.contract import choose_added
from batchledger.model.records.rules import UnknownFieldPolicy


def find_new_columns(platform: Platform, attempt: Attempt) -> Sequence[str]:
    """Return the fields of a staged attempt that get a column now; then it has to be staged again, with them.

    The ledger knows them from now on. A dry run adds none.
    """
    batch = attempt.batch
    if platform.rules.unknown_fields is not UnknownFieldPolicy.ADD or batch.is_dry_run:
        return ()
    unknown = platform.evidence.summarise_unknown_fields(attempt)
    new = choose_added(unknown.by_name, platform.ledger.list_added_columns(batch.pipeline)) if unknown.by_name else ()
    if new:
        platform.ledger.add_columns(attempt, new)
    return new
