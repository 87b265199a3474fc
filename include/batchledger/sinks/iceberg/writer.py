"""Writes the rows of an attempt into files for a lake, and what the files hold into an index, inside Spark tasks."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc
from psycopg import sql
from typing_extensions import override

from batchledger.database.sessions import write_and_commit
from batchledger.database.transactions import STAGING_SCHEMA
from batchledger.model.errors import StagingError
from batchledger.model.records.columns import DELETED_COLUMN
from batchledger.ports import StagingWriter
from batchledger.sinks.iceberg.files import IcebergFiles, IcebergFileWriter


@dataclass(frozen=True)
class LakeStagingWriter(StagingWriter):
    """Writes rows to files, reads them back into the index once the files are whole, and lists the files.

    So the index holds what the files hold. Rows that delete a key are no rows of the table: they go to the index only.
    """

    dsn: str = field(repr=False)
    list_table: str
    files: IcebergFileWriter
    index: StagingWriter
    index_schema: pa.Schema

    @contextmanager
    @override
    def open(self, task: int) -> Iterator[Callable[[pa.RecordBatch], None]]:
        with self.index.open(task) as write_index:
            with self.files.open() as files:

                def write(batch: pa.RecordBatch) -> None:
                    if DELETED_COLUMN in batch.schema.names:
                        deletes = pc.fill_null(batch[DELETED_COLUMN], fill_value=False)
                        if deletes.true_count:
                            write_index(_as_index(batch.filter(deletes), self.index_schema))
                        batch = batch.filter(pc.invert(deletes)).drop_columns([DELETED_COLUMN])
                    if batch.num_rows:
                        files.write(batch.select(self.files.schema.names))

                yield write
            if files.manifest is not None:
                self._read_back(files, write_index)
                self._list(task, files.manifest)

    def _read_back(self, files: IcebergFiles, write_index: Callable[[pa.RecordBatch], None]) -> None:
        found = 0
        for batch in files.read_back([each for each in self.index_schema.names if each != DELETED_COLUMN]):
            write_index(_as_index(batch, self.index_schema))
            found += batch.num_rows
        if found != files.rows:
            raise StagingError(
                f"Files for {self.list_table} do not hold all rows. Nothing is visible.",
                why=f"A task wrote {files.rows} rows, {found} were read back.",
                advice="The next attempt writes files of its own.",
            )

    def _list(self, task: int, manifest: str) -> None:
        table = sql.Identifier(STAGING_SCHEMA, self.list_table)
        with write_and_commit(self.dsn) as connection:
            connection.execute(sql.SQL("insert into {} values (%s, %s)").format(table), [task, manifest])


def _as_index(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return the columns of the schema, in its types; empty if the batch has no such column."""
    columns = [
        batch[each.name].cast(each.type) if each.name in batch.schema.names else pa.nulls(batch.num_rows, each.type)
        for each in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)
