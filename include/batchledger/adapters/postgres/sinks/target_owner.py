"""Whose a target is, asked before anything is staged for it.

The ledger keeps, for each pipeline, the target that it has published to. It refuses the publication to any other one
again, under its locks (``ledger.publication``).
"""

from typing import Any

import psycopg

from batchledger.model.batch import Target
from batchledger.model.refusals import target_changed, target_owned


def require_own(cursor: psycopg.Cursor[Any], pipeline: str, name: str, identity: str | None, home: str = "") -> None:
    """Raise TargetChangedError unless the target is the pipeline's, or no pipeline has published to it yet.

    ``identity`` is None if there is no target. A target whose identity begins with ``home`` is recognised by its
    identity alone. If a pipeline's target was elsewhere, it is recognised by its name: it was restored or moved
    together with the ledger, and waits for ``adopt-target``.
    """
    cursor.execute("select name, target, target_identity from batchledger.pipeline where target is not null")
    known = {pipeline: Target(target, identity) for pipeline, target, identity in cursor}
    for owner, target in known.items():
        is_moved = bool(home) and target.name == name and not target.identity.startswith(home)
        if owner != pipeline and identity is not None and (target.identity == identity or is_moved):
            raise target_owned(pipeline, name, owner)
    if pipeline in known and known[pipeline].identity != identity:
        raise target_changed(pipeline, known[pipeline], name, identity)
