"""Stages records of a file with Spark in this process, where a transform needs it: rows go to files of one folder."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import pyarrow as pa
from typing_extensions import override

from batchledger.config.pipeline_file import PipelineConfig
from batchledger.formats.decoding.decoder import RecordDecoder
from batchledger.model.batch import Attempt, Batch, BatchState, Lane
from batchledger.model.offsets import OffsetRange
from batchledger.model.records.unknown_fields import UnknownFieldCounter
from batchledger.ports import EvidenceWriter, StagingWriter, Testimony
from batchledger.trying.records import RecordsOfFile
from batchledger.wiring import build_stager

if TYPE_CHECKING:
    from batchledger.source.spark.stager import ReadShare


def stage_records(pipeline: PipelineConfig, decoder: RecordDecoder, records: RecordsOfFile) -> pa.Table:
    """Return the rows that the transform makes of the records. Starts Spark, and stops it. Raises its errors."""
    from batchledger.source.spark.session import open_local_session

    with TemporaryDirectory(prefix="batchledger-try-") as folder:
        staging = _Staging(Path(folder))
        read: ReadShare = records.read
        stager = build_stager(
            pipeline,
            decoder,
            open_session=partial(open_local_session, f"batchledger try {pipeline.name}", folder),
            read_share=read,
            evidence=_Evidence(Path(folder)),
            sink=staging,
        )
        planned = datetime.now(UTC)
        batch = Batch(1, pipeline.name, Lane.LIVE, BatchState.PLANNED, 1, "try", records.ranges, 0, planned)
        stager.stage(Attempt(batch, 1, "try"))
        return staging.read()


@dataclass
class _Staging:
    """The part of a sink that a stager calls."""

    folder: Path
    schema: pa.Schema | None = None
    tasks: Sequence[int] = ()

    def open_staging(self, _: Attempt, schema: pa.Schema) -> "_RowsWriter":
        self.schema = schema
        return _RowsWriter(self.folder, schema)

    def seal_staging(self, _: Attempt, accepted_tasks: Sequence[int]) -> None:
        self.tasks = accepted_tasks

    def read(self) -> pa.Table:
        if self.schema is None:
            raise RuntimeError("nothing was staged")
        parts = [self.schema.empty_table()]
        for task in self.tasks:
            with pa.ipc.open_file(_name(self.folder, task)) as file:
                parts.append(file.read_all())
        return pa.concat_tables(parts)


@dataclass(frozen=True)
class _RowsWriter(StagingWriter):
    folder: Path
    schema: pa.Schema = field(repr=False)

    @override
    @contextmanager
    def open(self, task: int) -> Iterator[Callable[[pa.RecordBatch], None]]:
        with pa.OSFile(_name(self.folder, task), "wb") as file, pa.ipc.new_file(file, self.schema) as rows:
            yield rows.write


def _name(folder: Path, task: int) -> str:
    return str(folder / f"rows-{task}")


@dataclass(frozen=True)
class _Evidence:
    """The part of the evidence that a stager calls. What became no row is known already: it was decoded before."""

    folder: Path

    def open(self, _: Attempt) -> "_EvidenceWriter":
        return _EvidenceWriter(self.folder)

    def count_finished(self, _: Attempt) -> int:
        return len(list(self.folder.glob("read-*")))


@dataclass(frozen=True)
class _EvidenceWriter(EvidenceWriter):
    folder: Path

    @override
    @contextmanager
    def open(self, reader: int) -> "Iterator[_Testimony]":
        yield _Testimony(self.folder / f"read-{reader}")


@dataclass(frozen=True)
class _Testimony(Testimony):
    file: Path

    @override
    def set_aside(self, records: pa.RecordBatch) -> None:
        pass

    @override
    def finish(
        self,
        visible: Sequence[OffsetRange],
        tombstones: Sequence[OffsetRange] = (),
        unknown: UnknownFieldCounter | None = None,
    ) -> None:
        self.file.touch()
