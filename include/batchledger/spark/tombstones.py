"""Keys of tombstones into columns: a record without a value still says, by its key, which row it deletes.

The key of one column is its text; the key of several is a JSON object. Expressions over the columns ``key`` and
``value`` of a record, and ``_decoded``, a struct of the declared columns.
"""

from collections.abc import Sequence

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from batchledger.columns import Column

_KEY_TEXT = "_key_text"
_KEY_DECODED = "_key_decoded"
_CORRUPT = "_corrupt"


def with_keys_of_tombstones(records: DataFrame, columns: Sequence[Column], key: Sequence[str]) -> DataFrame:
    """Let ``_decoded`` of a tombstone hold its key columns; the other columns are null, a bad key is null too."""
    keyed = [column for column in columns if column.name in key]
    # Only of tombstones, so that the keys of all other records need not be decoded.
    records = records.withColumn(_KEY_TEXT, F.when(F.col("value").isNull(), F.col("key").cast("string")))
    records = records.withColumn(_KEY_DECODED, _decode_key(keyed))
    fields = [
        (F.col(f"{_KEY_DECODED}.{column.name}") if column.name in key else F.lit(None)).cast(column.type)
        for column in columns
    ]
    named = [each.alias(column.name) for each, column in zip(fields, columns, strict=True)]
    from_key = F.struct(*named, F.lit(None).cast("string").alias(_CORRUPT))
    return records.withColumn("_decoded", F.when(F.col("value").isNull(), from_key).otherwise(F.col("_decoded")))


def decodes_as_key(key: Sequence[str]) -> SparkColumn:
    """Whether the record's key gives a value for every key column; false for a record without a key."""
    is_text = F.coalesce(F.is_valid_utf8(F.col(_KEY_TEXT)), F.lit(False))
    condition = is_text & (is_one_object(F.col(_KEY_TEXT)) if len(key) > 1 else F.lit(True))
    for name in key:
        condition = condition & F.col(f"{_KEY_DECODED}.{name}").isNotNull()
    return F.coalesce(condition, F.lit(False))


def is_one_object(text: SparkColumn) -> SparkColumn:
    """Whether a text that begins with a JSON object holds nothing after it; found by counting, see ``decode``."""
    in_brackets = F.json_array_length(F.concat(F.lit("["), text, F.lit("]")))
    return F.rtrim(text).endswith("}") & (F.coalesce(in_brackets, F.lit(0)) == 1)


def _decode_key(keyed: Sequence[Column]) -> SparkColumn:
    text = F.col(_KEY_TEXT)
    if len(keyed) == 1:
        return F.struct(text.try_cast(keyed[0].type).alias(keyed[0].name))
    schema = ", ".join(f"`{column.name}` {column.type}" for column in keyed)
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT}
    decoded = F.from_json(text, f"{schema}, {_CORRUPT} string", options)
    return F.when(decoded[_CORRUPT].isNull(), decoded)
