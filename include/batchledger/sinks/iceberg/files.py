"""Files of rows: written inside Spark tasks, each task with a manifest of its own, and written anew without some rows.

The manifest is Iceberg's own. It is what a task leaves behind. Files that no accepted task lists are orphaned, and go
when orphaned files are removed.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.avro.file import AvroFile
from pyiceberg.catalog.noop import NoopCatalog
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io import load_file_io
from pyiceberg.io.pyarrow import ArrowScan, _dataframe_to_data_files, schema_to_pyarrow
from pyiceberg.manifest import (
    DataFile,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    write_manifest,
)
from pyiceberg.schema import Schema
from pyiceberg.table import FileScanTask, Table
from pyiceberg.table.locations import load_location_provider
from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil

from batchledger.model.records.columns import BATCH_COLUMN, COORDINATE_COLUMNS
from batchledger.sinks.iceberg.coordinates import Coordinates
from batchledger.sinks.iceberg.layout import read_schema, rename, stored_name, to_stored
from batchledger.sinks.iceberg.projection import keep_nulls

HELD_BYTES = 32 * 2**20
"""A task holds so many bytes of rows before it writes them to a file; sorting them takes as much again."""
AT_ONCE_BYTES = 32 * 2**20
"""So many bytes of stored files are read at once; their rows take several times as much."""
OF_FILES = ("adls.", "buffer-size", "client.", "gcs.", "hdfs.", "hf.", "py-io-impl", "s3.", "warehouse")
"""How the names of properties begin by which PyIceberg opens files."""
_NO_SNAPSHOT = 0


@dataclass(frozen=True)
class IcebergFileWriter:
    """Writes files of rows from inside Spark tasks; pickled to the executors. Unlisted files are never read.

    ``schema`` has the columns of the rows as they are read back.
    """

    metadata: str
    properties: Mapping[str, str] = field(repr=False)
    batch_id: int
    schema: pa.Schema

    @contextmanager
    def open(self) -> Iterator["IcebergFiles"]:
        """Open the files of a task."""
        metadata = TableMetadataUtil.parse_raw(self.metadata)
        io = load_file_io(dict(self.properties), metadata.location)
        files = IcebergFiles(Table((), metadata, "", io, NoopCatalog("a task commits nothing")), self.batch_id)
        yield files
        files.close()


@dataclass
class IcebergFiles:
    """Holds rows until there are enough for a file, and writes them in the order of their time.

    ``rows`` says how many were written. Once it is closed, ``manifest`` says where the files are listed; None when
    there is no row.
    """

    table: Table = field(repr=False)
    batch_id: int
    rows: int = 0
    manifest: str | None = None
    _held: list[pa.RecordBatch] = field(default_factory=list)
    _bytes: int = 0
    _files: list[DataFile] = field(default_factory=list)

    def write(self, batch: pa.RecordBatch) -> None:
        """Write rows, which may be held back until there are enough for a file."""
        columns = [*batch.columns, pa.repeat(pa.scalar(self.batch_id, pa.int64()), batch.num_rows)]
        names = [*map(stored_name, batch.schema.names), BATCH_COLUMN]
        self._held.append(pa.RecordBatch.from_arrays(columns, names=names))
        self._bytes += batch.nbytes
        self.rows += batch.num_rows
        if self._bytes >= HELD_BYTES:
            self._flush()

    def read_back(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the listed files, as they are stored. The files are closed."""
        # One file after the other: together they are as large as the task's share.
        for each in read_list(self.table, self.manifest) if self.manifest else ():
            yield from read_files(self.table, [FileScanTask(each)], columns)

    def close(self) -> None:
        """Write what is held, and the list of the files."""
        self._flush()
        if self._files:
            self.manifest = write_list(self.table, self._files)

    def _flush(self) -> None:
        if self._held:
            self._files += write_files(self.table, pa.Table.from_batches(self._held))
        self._held, self._bytes = [], 0


def write_files(table: Table, rows: pa.Table) -> Sequence[DataFile]:
    """Write rows, with the names of the table, to files of its size and partitions."""
    keep_nulls()
    stored = schema_to_pyarrow(table.schema(), include_field_ids=False)
    wanted = pa.schema([stored.field(each) for each in rows.schema.names])
    cast = to_stored(rows, wanted).sort_by("_timestamp")
    return list(_dataframe_to_data_files(table.metadata, cast, table.io, uuid4()))


def write_list(table: Table, files: Sequence[DataFile]) -> str:
    """Write a manifest of files, and return where it is."""
    place = load_location_provider(table.location(), table.properties).new_metadata_location(f"staged-{uuid4()}.avro")
    with write_manifest(
        table.format_version, table.spec(), table.schema(), table.io.new_output(place), _NO_SNAPSHOT, "deflate"
    ) as writer:
        for each in files:
            writer.add_entry(
                ManifestEntry.from_args(status=ManifestEntryStatus.ADDED, snapshot_id=_NO_SNAPSHOT, data_file=each)
            )
    return place


def read_list_schema(table: Table, place: str) -> Schema:
    """Return the schema for which the files of a manifest were written."""
    with AvroFile[ManifestEntry](table.io.new_input(place)) as reader:
        return Schema.model_validate_json(reader.header.meta["schema"])


def read_list(table: Table, place: str) -> Sequence[DataFile]:
    """Return the files of a manifest that a task has written, with the partitions that the table had then."""
    stored = table.io.new_input(place)
    with AvroFile[ManifestEntry](stored) as reader:
        spec_id = int(reader.header.meta["partition-spec-id"])
    manifest = ManifestFile.from_args(
        manifest_path=place,
        manifest_length=len(stored),
        partition_spec_id=spec_id,
        content=ManifestContent.DATA,
        added_snapshot_id=_NO_SNAPSHOT,
        sequence_number=0,
        min_sequence_number=0,
    )
    return [entry.data_file for entry in manifest.fetch_manifest_entry(table.io)]


def write_without(table: Table, task: FileScanTask, left_out: Coordinates) -> tuple[int, Sequence[DataFile]]:
    """Write the rows of a file anew, except some; return how many were left out, and the new files.

    Writes nothing if the file holds none of them.
    """
    coordinates = list(read_files(table, [task], COORDINATE_COLUMNS))
    count = sum(left_out.mark(each).true_count for each in coordinates)
    if not count:
        return 0, ()
    whole = read_schema(table).names
    kept = [each.filter(pc.invert(left_out.mark(each))) for each in read_files(table, [task], whole)]
    rows = pa.Table.from_batches(kept)
    if not rows.num_rows:
        return count, ()
    named = rows.rename_columns([stored_name(each) for each in rows.schema.names])
    return count, write_files(table, named)


def read_files(table: Table, tasks: Sequence[FileScanTask], columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of files in whole batches, by the names of the rows, without deleted ones.

    PyIceberg reads all files of one request at once and keeps them, so each request is for a few.
    """
    keep_nulls()
    schema = read_schema(table, columns)
    projected = table.schema().select(*map(stored_name, columns))
    scan = ArrowScan(table.metadata, table.io, projected, AlwaysTrue())
    for together in _read_together(tasks):
        for batch in scan.to_record_batches(together):
            yield rename(batch, schema)


def _read_together(tasks: Sequence[FileScanTask]) -> Iterator[Sequence[FileScanTask]]:
    """Yield the files in their order: small ones together, one larger than ``AT_ONCE_BYTES`` by itself."""
    together: list[FileScanTask] = []
    size = 0
    for each in tasks:
        if together and size + each.file.file_size_in_bytes > AT_ONCE_BYTES:
            yield together
            together, size = [], 0
        together.append(each)
        size += each.file.file_size_in_bytes
    if together:
        yield together


def without_login(properties: Mapping[str, Any], of_catalog: Mapping[str, Any]) -> dict[str, Any]:
    """Return the properties of files that tasks need, as text: all that the catalog lends for the table.

    The connection's own properties, ``of_catalog``, are left out unless files are opened by them. So the login to the
    catalog is left out, whatever its kind calls it: ``credential``, ``token``, ``uri`` with a password.
    """
    return {
        name: value
        for name, value in properties.items()
        if isinstance(value, str | int | float) and (name.startswith(OF_FILES) or of_catalog.get(name) != value)
    }


def slim(metadata: TableMetadata) -> str:
    """Return what a task has to know about a table, without its history."""
    without: dict[str, object] = {each: [] for each in ("snapshots", "snapshot_log", "metadata_log")}
    return metadata.model_copy(update={**without, "refs": {}, "current_snapshot_id": None}).model_dump_json()


def keep_without(table: Table, tasks: Sequence[FileScanTask], left_out: Coordinates) -> tuple[Sequence[DataFile], int]:
    """Return the files, written anew if they hold rows to leave out, and how many rows were left out."""
    rest, count, gone = replace_without(table, tasks, left_out)
    kept = [each.file for each in tasks if each not in gone]
    return [*kept, *rest], count


def replace_without(
    table: Table, tasks: Sequence[FileScanTask], left_out: Coordinates
) -> tuple[Sequence[DataFile], int, Sequence[FileScanTask]]:
    """Write the files that hold some of the rows anew; return the new files, the number of rows, and the old files."""
    added: list[DataFile] = []
    count, gone = 0, []
    for task in tasks if len(left_out) else ():
        found, files = write_without(table, task, left_out)
        for each in files:
            # PyIceberg writes for the table's present partitions, and does not note it.
            each.spec_id = table.metadata.default_spec_id
        if found:
            gone.append(task)
            added += files
            count += found
    return added, count, gone
