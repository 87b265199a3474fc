"""The roles around the core. Adapters implement them and meet only here; they never import each other.

A class inherits from its role; what it does not explain, the role does. Attributes of a role are read, never set. What
the core asks has a real adapter and an in-memory one, and both pass the same contract tests. A
publication has three outcomes: it returned (published), it raised a typed error (not published), or it raised
OutcomeUnknownError (ask for the batch id, I9).
"""

from collections.abc import Callable

from batchledger.ports.alerts import Channel, Incidents
from batchledger.ports.checks import Auditor, CheckedBatch, RecentBatch, RowChecks
from batchledger.ports.evidence import Evidence, EvidenceWriter, Testimony
from batchledger.ports.ledger import Decisions, Ledger
from batchledger.ports.presence import Presences
from batchledger.ports.publication import EraseRows, Publication, RowsToPublish, TargetAccess, Truncate
from batchledger.ports.schemas import KeptSchemas, SchemaRegistrar, SchemaRegistry
from batchledger.ports.sink import (
    CommittingSink,
    RowsToCheck,
    RowStream,
    Sink,
    StagedRows,
    Staging,
    StagingWriter,
    committing,
)
from batchledger.ports.source import SourceLog, Stager

__all__ = [
    "Auditor",
    "Channel",
    "CheckedBatch",
    "CommittingSink",
    "CrashHook",
    "Decisions",
    "EraseRows",
    "Evidence",
    "EvidenceWriter",
    "Incidents",
    "KeptSchemas",
    "Ledger",
    "Presences",
    "Publication",
    "RecentBatch",
    "RowChecks",
    "RowStream",
    "RowsToCheck",
    "RowsToPublish",
    "SchemaRegistrar",
    "SchemaRegistry",
    "Sink",
    "SourceLog",
    "StagedRows",
    "Stager",
    "Staging",
    "StagingWriter",
    "TargetAccess",
    "Testimony",
    "Truncate",
    "committing",
    "no_crash",
]

CrashHook = Callable[[str], None]
"""Called with the name of each crash point as it is passed; does nothing outside of fault tests."""


def no_crash(point: str) -> None:
    """The crash hook of normal operation."""
