"""Where and how a run was measured."""

import os
import platform
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Self

import psutil

from batchledger.local.stack.defaults import KAFKA_VERSION, POSTGRES_VERSION, SPARK_VERSION
from bench.bench import RECORDS, ROUNDS
from bench.services import ROOT


@dataclass(frozen=True)
class About:
    """What a reader has to know about a run to compare it with another one."""

    taken_at: str
    code: str
    records: int
    rounds: int
    parts: tuple[str, ...]
    left_out: tuple[str, ...]
    machine: str
    versions: str

    @property
    def taken(self) -> str:
        """How often each measurement was taken, in words."""
        return "one round" if self.rounds == 1 else f"medians of {self.rounds}"

    @property
    def is_full(self) -> bool:
        """Whether the run is large enough to meet the goals."""
        return self.records >= RECORDS and self.rounds >= ROUNDS

    @classmethod
    def now(cls, records: int, rounds: int, parts: Sequence[str], left_out: Sequence[str]) -> Self:
        """Look at the machine and the checkout. ``parts`` are whole; ``left_out`` are not, or not there."""
        version_by_name = {
            "Kafka": KAFKA_VERSION,
            "PostgreSQL": POSTGRES_VERSION,
            "Spark": SPARK_VERSION,
            "Python": platform.python_version(),
        }
        return cls(
            taken_at=datetime.now(UTC).isoformat(timespec="seconds"),
            code=describe_code(),
            records=records,
            rounds=rounds,
            parts=tuple(parts),
            left_out=tuple(left_out),
            machine=f"{os.cpu_count()} cores, {psutil.virtual_memory().total / 2**30:.0f} GiB, {platform.machine()}",
            versions=", ".join(f"{name} {version}" for name, version in version_by_name.items()),
        )


def describe_code() -> str:
    """Return the newest commit that changed what is measured, and whether the checkout differs from it."""
    commit = _ask_git("log", "-1", "--format=%h")
    return f"{commit}, with changes" if _ask_git("status", "--short") else commit


def _ask_git(*words: str) -> str:
    asked = ["git", "-C", str(ROOT), *words, "--", "include", "bench"]
    return subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()
