"""Iceberg tables that others write, for tests of watches, and files of deletes: PyIceberg itself writes none."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestWriter,
    ManifestWriterV2,
)
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import FileScanTask, Table
from pyiceberg.table.snapshots import Operation
from pyiceberg.table.update.snapshot import _FastAppendFiles
from pyiceberg.typedef import Record, TableVersion
from pyiceberg.types import LongType, NestedField, StringType
from typing_extensions import override

from batchledger.proof.watching import TableLook
from batchledger.sinks.iceberg.catalog import LakeCatalog
from batchledger.watching.iceberg import LakeTable
from batchledger.watching.look import TableWatch
from batchledger.watching.table import RowCoordinates
from tests.conftest import Kafka
from tests.contract.lake_warehouse import catalog_in
from tests.watched import WatchedTopic

NESTED = RowCoordinates("_kafka_metadata.partition", "_kafka_metadata.offset", "_kafka_metadata.topic")
FLAT = RowCoordinates("kafka_partition", "kafka_offset")
RECORD = pa.struct([("topic", pa.string()), ("partition", pa.int32()), ("offset", pa.int64())])
NESTED_SCHEMA = pa.schema([("_kafka_metadata", RECORD), ("note", pa.string())])
FLAT_SCHEMA = pa.schema([("kafka_partition", pa.int32()), ("kafka_offset", pa.int64()), ("note", pa.string())])


@dataclass
class WatchedLake:
    """A topic, and a table of a lake that should have a row for each of its records."""

    topic: WatchedTopic
    catalog: LakeCatalog
    schema: pa.Schema
    coordinates: RowCoordinates

    def __post_init__(self) -> None:
        """Create an empty table."""
        self.catalog.opened.create_namespace_if_not_exists("watched")
        self.catalog.opened.create_table(self.identifier, self.schema)

    @property
    def identifier(self) -> str:
        return f"watched.{self.topic.name}"

    @property
    def table(self) -> Table:
        return self.catalog.opened.load_table(self.identifier)

    @property
    def watched(self) -> LakeTable:
        return LakeTable(self.catalog, self.identifier, self.coordinates, (self.topic.name,))

    def append(self, offsets: Sequence[object], partition: object = 0, topic: str | None = None) -> None:
        """Commit a file with rows of these offsets."""
        if self.schema == NESTED_SCHEMA:
            topic = topic or self.topic.name
            rows: Any = {"_kafka_metadata": [{"topic": topic, "partition": partition, "offset": at} for at in offsets]}
        else:
            rows = {"kafka_partition": [partition] * len(offsets), "kafka_offset": list(offsets)}
        rows["note"] = [f"row {each}" for each in offsets]
        self.table.append(pa.table(rows, schema=self.schema))

    def fill(self) -> None:
        """Commit a file with the row of each record, for each partition."""
        for partition in range(2):
            self.append(range(10), partition)

    def append_again(self, task: FileScanTask) -> None:
        """Commit a file once more that the table has."""
        with self.table.transaction() as change, change.update_snapshot().fast_append() as added:
            added.append_data_file(task.file)

    @property
    def files(self) -> list[FileScanTask]:
        return list(self.table.scan().plan_files())

    def watch(self, **rules: Any) -> TableWatch:
        return replace(self.topic.watch(**rules), table=self.watched)

    def look(self, watch: TableWatch | None = None, **asked: Any) -> TableLook:
        return self.topic.look(watch or self.watch(), **asked)

    def drop(self) -> None:
        self.catalog.opened.drop_table(self.identifier)
        self.catalog.rest()


OpenLake = Callable[..., WatchedLake]


def lend_lakes(kafka: Kafka, dsn: str, folder: Path) -> Iterator[OpenLake]:
    """Lend what makes a topic with ten records in each of two partitions, and an empty table."""
    made: list[WatchedLake] = []

    def open_(schema: pa.Schema = FLAT_SCHEMA, coordinates: RowCoordinates = FLAT) -> WatchedLake:
        topic = WatchedTopic(kafka.options, dsn, partitions=2)
        for partition in range(2):
            topic.produce(10, partition)
        made.append(WatchedLake(topic, catalog_in(dsn, folder), schema, coordinates))
        return made[-1]

    yield open_
    for each in made:
        each.drop()


_LONGS, _INTS = (f'"element-id":136,"element":"{each}"' for each in ("long", "int"))


class _DeletesWriter(ManifestWriterV2):
    @override
    def content(self) -> ManifestContent:
        return ManifestContent.DELETES

    @property
    @override
    def _meta(self) -> dict[str, str]:
        return {**super()._meta, "content": "deletes"}

    @override
    def _with_partition(self, format_version: TableVersion) -> Schema:
        # PyIceberg declares the ids of columns as longs. The format says ints, and Iceberg's own library reads ints.
        return Schema.model_validate_json(
            super()._with_partition(format_version).model_dump_json().replace(_LONGS, _INTS)
        )


class _AddDeletes(_FastAppendFiles):
    @override
    def new_manifest_writer(self, spec: PartitionSpec) -> ManifestWriter:
        return _DeletesWriter(spec, self.schema(), self.new_manifest_output(), self._snapshot_id, self._compression)


def add_deletes(table: Table, content: DataFileContent, rows: pa.Table, **of_file: Any) -> None:
    """Commit a file of deletes, as Flink and Spark write them; PyIceberg writes none itself."""
    path = f"{table.location()}/data/deletes-{table.metadata.last_sequence_number}.parquet"
    with table.io.new_output(path).create() as stream:
        pq.write_table(rows, stream)
    file = DataFile.from_args(
        content=content,
        file_path=path,
        file_format=FileFormat.PARQUET,
        partition=Record(),
        record_count=rows.num_rows,
        file_size_in_bytes=len(table.io.new_input(path)),
        spec_id=0,
        **of_file,
    )
    with table.transaction() as change, _AddDeletes(Operation.OVERWRITE, change, table.io) as added:
        added.append_data_file(file)


def delete_positions(table: Table, path: str, positions: Sequence[int]) -> None:
    """Delete rows of a file by their positions."""
    schema = schema_to_pyarrow(
        Schema(
            NestedField(2147483546, "file_path", StringType(), required=True),
            NestedField(2147483545, "pos", LongType(), required=True),
        )
    )
    rows = pa.table({"file_path": [path] * len(positions), "pos": positions}, schema=schema)
    add_deletes(table, DataFileContent.POSITION_DELETES, rows)


def delete_by_equality(table: Table, offsets: Sequence[int]) -> None:
    """Delete the rows of these offsets, in whatever file they are."""
    field = table.schema().find_field("kafka_offset")
    rows = pa.table({"kafka_offset": list(offsets)}, schema=schema_to_pyarrow(table.schema().select("kafka_offset")))
    add_deletes(table, DataFileContent.EQUALITY_DELETES, rows, equality_ids=[field.field_id])
