"""The fields of a record as an Arrow schema."""

import pyarrow as pa

RECORD_SCHEMA = pa.schema(
    {
        "message_id": pa.string(),
        "device_id": pa.int32(),
        "seq": pa.int64(),
        "amount": pa.float64(),
        "note": pa.string(),
    }
)
