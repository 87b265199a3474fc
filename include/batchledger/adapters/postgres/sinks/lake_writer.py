"""Writes the rows of an attempt into files for a lake, from inside Spark tasks, and lists the files when whole."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import psycopg
import pyarrow as pa
import pyarrow.compute as pc
from psycopg import sql
from typing_extensions import override

from batchledger.adapters.postgres.database import STAGING_SCHEMA
from batchledger.model.records.columns import DELETED_COLUMN
from batchledger.ports import RowFileWriter, StagingWriter


@dataclass(frozen=True)
class LakeStagingWriter(StagingWriter):
    """Writes rows to files, and lists the files in the ledger's database once they are whole.

    Rows that delete a key are no rows of the table: they go to the index only.
    """

    dsn: str = field(repr=False)
    list_table: str
    files: RowFileWriter
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
                            write_index(select_columns(batch.filter(deletes), self.index_schema))
                        batch = batch.filter(pc.invert(deletes)).drop_columns([DELETED_COLUMN])
                    if batch.num_rows:
                        files.write(batch.select(self.files.schema.names))

                yield write
            if files.manifest is not None:
                self._list(task, files.manifest, files.rows)

    def _list(self, task: int, manifest: str, rows: int) -> None:
        table = sql.Identifier(STAGING_SCHEMA, self.list_table)
        statement = sql.SQL("insert into {} values (%s, %s, %s)").format(table)
        with psycopg.connect(self.dsn) as connection:
            connection.execute(statement, [task, manifest, rows])


def select_columns(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return the columns of the schema, in its types."""
    return pa.RecordBatch.from_arrays([batch[each.name].cast(each.type) for each in schema], schema=schema)
