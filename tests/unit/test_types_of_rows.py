"""What PostgreSQL calls the types of rows, for each type that a pipeline file declares."""

import pyarrow as pa
import pytest

from batchledger.formats.arrow_types import arrow_schema
from batchledger.model.errors import TargetChangedError
from batchledger.model.records.columns import parse_columns
from batchledger.model.records.types import NAMED_TYPES
from batchledger.sinks.staging.tables import postgres_type
from batchledger.sinks.table.silent_changes import describe_type

NAMES = {
    "string": "text",
    "boolean": "boolean",
    **dict.fromkeys(("tinyint", "byte", "smallint", "short"), "smallint"),
    **dict.fromkeys(("int", "integer"), "integer"),
    **dict.fromkeys(("bigint", "long"), "bigint"),
    **dict.fromkeys(("float", "real"), "real"),
    "double": "double precision",
    "date": "date",
    **dict.fromkeys(("timestamp", "timestamp_s", "timestamp_ms", "timestamp_us"), "timestamp with time zone"),
    "binary": "bytea",
    "uuid": "uuid",
    "jsonb": "jsonb",
    "decimal(10,2)": "numeric",
    "struct<a int>": "jsonb",
    "map<string, int>": "jsonb",
    "array<boolean>": "boolean[]",
    "array<uuid>": "text[]",
    "array<timestamp>": "jsonb",
}


def test_every_type_has_a_name_in_postgresql() -> None:
    assert [each for each in NAMED_TYPES if each not in NAMES] == []


@pytest.mark.parametrize(("declared", "name"), NAMES.items())
def test_type_of_rows_is_named_as_postgresql_names_it(declared: str, name: str) -> None:
    (field,) = arrow_schema(parse_columns(f"c {declared}"))
    assert postgres_type(field) == name
    assert describe_type(field) == ("numeric(10,2)" if name == "numeric" else name)


def test_moment_without_a_zone_that_a_transform_made_keeps_none() -> None:
    assert postgres_type(pa.field("c", pa.timestamp("us"))) == "timestamp without time zone"


def test_type_that_postgresql_has_not_is_refused() -> None:
    with pytest.raises(TargetChangedError, match="duration"):
        postgres_type(pa.field("c", pa.duration("us")))
