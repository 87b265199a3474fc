"""COPY data of the rows of a batch, as the tasks of a stream make it: the table has the id of the batch in each row."""

from dataclasses import dataclass

import pyarrow as pa

from batchledger.model.records.columns import BATCH_COLUMN
from batchledger.sinks.staging.tables import CopyEncoder


@dataclass
class CopyRows:
    """Makes the COPY data of one share."""

    batch_id: int
    encoder: CopyEncoder | None = None

    def encode(self, rows: pa.RecordBatch) -> bytes:
        """Return data of whole rows, perhaps of earlier ones, perhaps none yet."""
        ids = pa.repeat(pa.scalar(self.batch_id, pa.int64()), rows.num_rows)
        marked = rows.append_column(BATCH_COLUMN, ids)
        self.encoder = self.encoder or CopyEncoder(marked.schema)
        return self.encoder.encode(marked)

    def finish(self) -> bytes:
        """Return the data of the rows that are left."""
        return self.encoder.finish() if self.encoder else b""
