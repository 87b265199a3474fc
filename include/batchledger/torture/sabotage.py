"""The platform with one of its protections taken out, to see that the checker notices. Never used outside of torture.

Each of these is a mistake that systems of this kind have been shipped with.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from enum import StrEnum

import psycopg
from psycopg.types.json import Jsonb

from batchledger.accounting import Balance
from batchledger.batch import Attempt, Batch, BatchState, CheckResult, Staged
from batchledger.config import PipelineConfig
from batchledger.database import transaction
from batchledger.ledger.postgres import PostgresLedger
from batchledger.ledger.publication import PostgresPublication
from batchledger.planning import Plan
from batchledger.ports import CrashHook, Stager
from batchledger.run_batch import Platform
from batchledger.wiring import build_platform, ledger_dsn

PLAN_CHOSEN = "plan_chosen"
"""A point that only the platform without compare-and-swap passes: between choosing a plan and storing it."""


class Protection(StrEnum):
    """What can be switched off."""

    FENCING = "fencing"
    COMPARE_AND_SWAP = "compare_and_swap"
    READ_COMMITTED = "read_committed"
    ONE_TRANSACTION = "one_transaction"
