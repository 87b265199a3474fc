"""The RowChecks port: Great Expectations judges, in SQL, the rows that would be published.

It works through the one connection that the sink has opened. Each statement there stands alone and can only read (I6).
The library knows no address and no password. It asks the database for failing coordinates, some of them with values.
Results lose these values before anything is returned. The library's own log would show them, so it is silenced.
"""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Self

from great_expectations.datasource.fluent.interfaces import Batch
from sqlalchemy.pool import StaticPool
from typing_extensions import override

from batchledger.checks.judging import open_context, validate
from batchledger.checks.outcomes import explain, tell_not_run
from batchledger.checks.requested import BuiltCheck, build_checks
from batchledger.checks.statistics import StatisticalChecks, is_statistical
from batchledger.model.batch import Lane
from batchledger.model.checks import JudgedCheck, RequestedCheck
from batchledger.model.records.columns import COORDINATE_COLUMNS
from batchledger.ports import CheckedBatch, RowChecks, RowsToCheck

MOST_COORDINATES = 1_000
"""At most so many failing rows are asked for."""
MOST_SET_ASIDE = 100_000
UNUSED_ADDRESS = "postgresql+psycopg://unused@nowhere/rows"
"""Great Expectations insists on an address, although it gets a connection."""


@dataclass(frozen=True)
class PipelineChecks(RowChecks):
    """``folder`` holds the pipeline file."""

    requested: tuple[RequestedCheck, ...]
    folder: Path

    @property
    @override
    def recent_batches(self) -> int:
        return self._statistical.recent_batches

    @override
    def require_usable(self) -> None:
        _ = self._built

    @override
    def judge(self, rows: RowsToCheck, batch: CheckedBatch) -> Sequence[JudgedCheck]:
        judged = judge_rows(self._built, partial(_open_batch, rows), rows.checked)
        if batch.batch.lane is Lane.LIVE:
            with _quiet_library():
                judged |= {each.result.name: each for each in self._statistical.judge(rows, batch)}
        return [judged[each.name] for each in self.requested if each.name in judged]

    @cached_property
    def _built(self) -> tuple[BuiltCheck, ...]:
        return build_checks([each for each in self.requested if not is_statistical(each)], self.folder)

    @cached_property
    def _statistical(self) -> StatisticalChecks:
        return StatisticalChecks(tuple(each for each in self.requested if is_statistical(each)))


class _Borrowed(StaticPool):
    """The one connection that the sink has opened and will close, whatever Great Expectations does with it."""

    @override
    def dispose(self) -> None:
        """Leave it open: the library disposes of engines when they are collected, even while another one works."""

    @override
    def recreate(self) -> Self:
        """Go on with the same connection."""
        return self


def judge_rows(checks: Sequence[BuiltCheck], open_batch: Callable[[], Batch], count: int) -> dict[str, JudgedCheck]:
    """Return what comes of the checks over so many rows, by their names."""
    aside = [each for each in checks if each.sets_aside]
    others = [each for each in checks if not each.sets_aside]
    with _quiet_library():
        return {
            **_validate(others, open_batch, count, MOST_COORDINATES),
            # One more than may be set aside, to see that there are more.
            **_validate(aside, open_batch, count, MOST_SET_ASIDE + 1),
        }


def _validate(
    checks: Sequence[BuiltCheck], open_batch: Callable[[], Batch], count: int, limit: int
) -> Mapping[str, JudgedCheck]:
    if not checks:
        return {}
    result_format = {
        "result_format": "SUMMARY",
        "unexpected_index_column_names": list(COORDINATE_COLUMNS),
        "partial_unexpected_count": limit,
    }
    try:
        results = validate(open_batch(), [each.expectation for each in checks], result_format)
    except Exception as error:  # noqa: BLE001 -- The library raises anything, and it says nothing of the data.
        return {each.check.name: JudgedCheck(tell_not_run(each.check, error)) for each in checks}
    return {each.check.name: explain(each, results[each.check.name], count, limit) for each in checks}


def _open_batch(rows: RowsToCheck) -> Batch:
    source = open_context().data_sources.add_postgres(  # type: ignore[call-arg]  # The stub lacks what it takes.
        "staging",
        connection_string=UNUSED_ADDRESS,
        kwargs={"creator": lambda: rows.connection, "isolation_level": "AUTOCOMMIT", "poolclass": _Borrowed},
    )
    asset = source.add_table_asset("rows", table_name=rows.table)
    return asset.add_batch_definition_whole_table("all").get_batch()


@contextmanager
def _quiet_library() -> Iterator[None]:
    """Keep Great Expectations from logging what a query has answered; results say what went wrong."""
    library = logging.getLogger("great_expectations")
    before = library.level
    library.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        library.setLevel(before)
