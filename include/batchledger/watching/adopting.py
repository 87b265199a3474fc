"""A watched table becomes the target of a pipeline: its rows are proved under a lock, and are the first batch.

The order of the steps: the table is locked against writers, all of its rows are counted, Kafka is asked about each
hole, the rows are judged, and get the batch's id. Ledger and table change in one transaction.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Any

import psycopg

from batchledger.config.pipeline_file import PipelineConfig
from batchledger.config.watch_file import WatchConfig
from batchledger.ledger.adopting import adopt_rows
from batchledger.looking import ledger_dsn
from batchledger.model.balance import HoleEvidence
from batchledger.model.batch import Decided, Decision
from batchledger.model.datasets import split_table
from batchledger.model.errors import DecisionRefusedError
from batchledger.model.offsets import OffsetRange, TopicPartition
from batchledger.model.records.columns import COORDINATE_COLUMNS
from batchledger.ports import TargetAccess
from batchledger.proof.takeover import TakenRows, account, begin, find_unread, lay_history
from batchledger.sinks.kind import RowAdoption
from batchledger.watching.look import TableWatch, find_known
from batchledger.watching.table import CountedTable


@dataclass(frozen=True)
class Adoption:
    """One watched table, whose ``rows`` are counted, and the pipeline that takes it over; a dry run is not kept."""

    watch: TableWatch
    rows: CountedTable
    pipeline: PipelineConfig
    table: RowAdoption
    now: datetime
    is_kept: bool

    def carry_out(self, decision: Decision) -> Decided:
        """Prove the rows, and let the pipeline go on behind them; a dry run locks and changes nothing.

        Raises DecisionRefusedError with what is not proved, and what the source, the table and the ledger raise.
        """
        name, dsn = self.pipeline.name, ledger_dsn(self.pipeline)
        explained: list[str] = []

        def take(access: TargetAccess, batch_id: int) -> TakenRows:
            with access.connection.cursor() as cursor:
                explained.extend(self._explain(cursor))
                if self.is_kept:
                    self.table.lock(cursor)
                taken = self._prove(cursor)
                access.confirm_target(self.table.claim(cursor))
                if self.is_kept:
                    self.table.take(cursor, batch_id)
                return taken

        decided = adopt_rows(dsn, name, decision, take, is_kept=self.is_kept)
        return replace(decided, means=tuple(explained)) if decided.is_new else decided

    def _prove(self, cursor: psycopg.Cursor[Any]) -> TakenRows:
        """Prove the rows as they are now: no row comes while the table is locked."""
        watch = self.watch
        _, log, known, recreated = find_known(watch, self.now, self.now)
        if recreated:
            raise self._refuse("A topic was created again since a look", "Its rows are of another topic")
        spans = [
            OffsetRange(TopicPartition(topic, number), first, last + 1)
            for topic, number, first, last in self.table.list_rows(cursor)
        ]
        others = sorted({each.partition.topic for each in spans} - {*watch.rules.topics})
        if others:
            raise self._refuse(f"It has rows of {', '.join(others)}, too", "A pipeline owns the whole of its table")
        history = lay_history(known, spans, {each: held.end for each, held in log.log_by_partition.items()})
        if not any(map(len, history.ranges)):
            raise self._refuse("The table has no rows of the topics", "Run the pipeline: it takes an empty table")
        counted = self.rows.count_within(history.ranges, None, partial(watch.source.read_log, watch.rules.topics))
        unread = find_unread(history, counted, watch.rules.holes)
        evidence = watch.source.look_into(unread) if unread else HoleEvidence((), (), {}, frozenset())
        balances = account(self.pipeline.name, history, counted, evidence, watch.rules.holes)
        return TakenRows(begin(history, log.identity_by_topic), balances)

    def _explain(self, cursor: psycopg.Cursor[Any]) -> Iterator[str]:
        """Say what is done to the table, and how it becomes what it was."""
        changes, back = self.table.explain(cursor)
        yield "The former writer has to be stopped. The table gets:"
        yield from (f"  {each};" for each in changes)
        yield f"The way back: batchledger retire {self.pipeline.name} --free-target --reason WHY, then"
        yield from (f"  {each};" for each in back)

    def _refuse(self, why: str, advice: str) -> DecisionRefusedError:
        return DecisionRefusedError(
            f"{self.pipeline.name} cannot take {self.rows.name} over. Nothing was changed.",
            why=f"{why}.",
            advice=f"{advice}.",
            pipeline=self.pipeline.name,
        )


def find_table(config: WatchConfig, pipeline: PipelineConfig) -> RowAdoption:
    """Return the watched table as the pipeline's target. Raises DecisionRefusedError if both are not about the same."""
    sink, places = pipeline.sink, config.places
    paths = zip(COORDINATE_COLUMNS, (places.topic, places.partition, places.offset), strict=True)
    own = {name: path for name, path in paths if path is not None}
    adoption = sink.adoption(own, config.source.topics[0])
    watched = (config.source.connection, sorted(config.source.topics))
    wanted = (pipeline.source.connection, sorted(pipeline.source.topics))
    watched_table = (config.table.connection, split_table(config.table.name))
    is_same = (sink.ledger_connection, sink.ledger_table) == watched_table
    faults = {
        f"it reads {wanted[1]} of {wanted[0]}, and the watch is of {watched[1]} of {watched[0]}": watched != wanted,
        f"its sink is {sink.target}, and the watched table is {config.table.name}": not is_same,
        "its sink does not append rows to a table": adoption is None,
        "it has dedupe or sequence, and nothing says what these rows had": bool(
            pipeline.deduplication or pipeline.numbering
        ),
        "the coordinates are parts of a column": any({".", ":"} & set(path) for path in own.values()),
    }
    found = [fault for fault, is_so in faults.items() if is_so]
    if adoption is None or found:
        raise DecisionRefusedError(
            f"{pipeline.name} cannot take over what {config.name} watches. Nothing was changed.",
            why=f"{'; '.join(found)}.",
            advice=f"Correct {pipeline.file.name}, or the file of the watch.",
            pipeline=pipeline.name,
        )
    return adoption
