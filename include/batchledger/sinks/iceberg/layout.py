"""How rows lie in an Iceberg table: names of columns, schema, partitions and order; Arrow's types on both sides.

Iceberg keeps some names for itself. Spark could not read a table with such a column, although it can be written. One
of them is ``_partition``: Kafka's partition is ``_kafka_partition`` in the table.
"""

import logging
import re
from collections.abc import Container, Iterable, Sequence
from contextlib import suppress
from uuid import uuid4

import pyarrow as pa
from pyiceberg.catalog import Catalog, MetastoreCatalog
from pyiceberg.exceptions import CommitFailedException, NamespaceAlreadyExistsError, TableAlreadyExistsError
from pyiceberg.io.pyarrow import (
    _check_pyarrow_schema_compatible,
    _pyarrow_to_schema_without_ids,
    schema_to_pyarrow,
)
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform, parse_transform
from pyiceberg.types import IcebergType, ListType, MapType, StructType, UUIDType

from batchledger.formats.arrow_types import is_uuid, pack_uuids, unpack_uuids
from batchledger.model.errors import TargetChangedError
from batchledger.model.records.columns import BATCH_COLUMN
from batchledger.model.records.partitioning import PartitionField as DeclaredField

logger = logging.getLogger(__name__)

STORED_NAMES = {"_partition": "_kafka_partition"}
_NAMES = {stored: name for name, stored in STORED_NAMES.items()}
RESERVED_NAMES = frozenset(
    {
        "_change_ordinal", "_change_type", "_commit_snapshot_id", "_deleted", "_file", "_last_updated_sequence_number",
        "_partition", "_pos", "_row_id", "_spec_id",
    }
)  # fmt: skip
"""The metadata columns of Iceberg, which no table can have."""

FORMAT_VERSION = 2
"""What PyIceberg can write; it reads 3."""

_SPARK_TYPES = {"long": "bigint", "timestamptz": "timestamp", "timestamp": "timestamp_ntz"}
"""What Spark calls types of Iceberg, if it has another name for them."""

_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

_PROPERTIES = {
    "format-version": str(FORMAT_VERSION),
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "20",
    "commit.manifest-merge.enabled": "true",
}


def stored_name(column: str) -> str:
    """The name that a column of the rows has in the table."""
    return STORED_NAMES.get(column, column)


def name_of(stored: str) -> str:
    """The name that a column of the table has in the rows."""
    return _NAMES.get(stored, stored)


def write_path(*path: str) -> str:
    """Return a name as Spark's statements write it: with quotes around a part that needs them.

    >>> write_path("lake-eu", "shop", "orders")
    '`lake-eu`.shop.orders'
    """
    return ".".join(each if _PLAIN_NAME.fullmatch(each) else f"`{each.replace('`', '``')}`" for each in path)


def name_type(type_: IcebergType) -> str:
    """Return the name that Spark has for a type."""
    match type_:
        case StructType(fields=fields):
            return f"struct<{', '.join(f'{each.name}: {name_type(each.field_type)}' for each in fields)}>"
        case ListType(element_type=element):
            return f"array<{name_type(element)}>"
        case MapType(key_type=key, value_type=value):
            return f"map<{name_type(key)}, {name_type(value)}>"
        case _:
            pass
    return _SPARK_TYPES.get(str(type_), str(type_))


def stored_schema(schema: pa.Schema, table: str) -> pa.Schema:
    """Return the schema of rows as the table stores them, with the batch id. Raises TargetChangedError."""
    fields = [
        pa.field(stored_name(each.name), pa.uuid() if is_uuid(each) else each.type)
        for each in schema
        if each.name != BATCH_COLUMN
    ]
    refused = sorted(RESERVED_NAMES & {each.name for each in fields})
    if refused:
        raise TargetChangedError(
            f"Table {table} cannot have a column {refused[0]!r}: Iceberg keeps the name for itself.",
            advice="Give it another name in the transform.",
            subject=table,
        )
    _require_distinct([each.name for each in fields], table)
    return pa.schema([*fields, pa.field(BATCH_COLUMN, pa.int64())])


def read_schema(table: Table, columns: Iterable[str] | None = None) -> pa.Schema:
    """Return the schema of rows as they are read from the table: ``columns`` of them, all by default.

    UUIDs are texts: Arrow joins and groups no values of its own type for them.
    """
    whole = schema_to_pyarrow(table.schema(), include_field_ids=False)
    by_name = {name_of(each.name): each for each in whole}
    wanted = by_name if columns is None else columns
    types = {name: pa.string() if each.type == pa.uuid() else each.type for name, each in by_name.items()}
    return pa.schema([pa.field(each, types[each]) for each in wanted])


def rename(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return a batch of the table with the names and types of the rows."""
    arrays = [_cast(batch.column(stored_name(each.name)), each.type) for each in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def to_stored(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return rows, with the names of the table, in its types. Raises pa.ArrowInvalid."""
    columns = [
        pa.chunked_array([_cast(each, field.type) for each in values.chunks], field.type)
        for field, values in zip(schema, rows.columns, strict=True)
    ]
    return pa.Table.from_arrays(columns, schema=schema)


def _cast(values: pa.Array, type_: pa.DataType) -> pa.Array:
    if values.type == type_:
        return values
    if type_ == pa.uuid():
        return pack_uuids(values).cast(type_)
    return (unpack_uuids(values) if values.type == pa.uuid() else values).cast(type_)


def create(
    catalog: Catalog, identifier: tuple[str, ...], schema: pa.Schema, partitions: Sequence[DeclaredField]
) -> None:
    """Create the table with an empty first snapshot, unless another process does so at the same time.

    The rows of a file are in the order of their time, and the table says so to engines that write it anew. Its files
    have a folder of their own. By default a new table would get the folder that a renamed one keeps, and to the
    maintenance of each the files of the other would look lost. A catalog over HTTP chooses the folder itself.
    Raises TargetChangedError if no file could be written for the partitions.
    """
    _require_writable(".".join(identifier), partitions, {each.name for each in schema if each.type == pa.uuid()})
    with suppress(NamespaceAlreadyExistsError):
        catalog.create_namespace(identifier[:-1])
    location = None
    if isinstance(catalog, MetastoreCatalog):
        place = catalog._resolve_table_location(None, ".".join(identifier[:-1]), identifier[-1])
        location = f"{place}-{uuid4().hex}"
    with (
        # A catalog refuses to create it, or to commit the creation.
        suppress(TableAlreadyExistsError, CommitFailedException),
        catalog.create_table_transaction(identifier, schema, location, properties=_PROPERTIES) as creation,
    ):
        with creation.update_spec() as spec:
            for each in partitions:
                spec.add_field(stored_name(each.column), parse_transform(each.transform), each.name)
        with creation.update_sort_order() as order:
            order.asc("_timestamp", IdentityTransform())
        # Branches need a snapshot, and a publication is compared with one.
        creation.append(creation.table_metadata.schema().as_arrow().empty_table())


def _require_writable(table: str, partitions: Iterable[DeclaredField], uuids: Container[str]) -> None:
    """Raise TargetChangedError if partitions are made of UUIDs, and not of their hashes; ``uuids`` by stored names."""
    for each in partitions:
        if not each.transform.startswith("bucket") and stored_name(each.column) in uuids:
            raise TargetChangedError(
                f"Table {table} is partitioned by {each.column}, which is a uuid. Nothing was written.",
                why="PyIceberg cannot write such partitions.",
                advice=f"Partition it by a hash of the column: bucket(16, {each.column})",
                subject=table,
            )


def require_fit(table: Table, name: str, schema: pa.Schema) -> None:
    """Raise TargetChangedError when the table lacks a column, has it with another type, or cannot be written."""
    if table.format_version != FORMAT_VERSION:
        raise TargetChangedError(
            f"Table {name} has format version {table.format_version}. Nothing was written.",
            why=f"Only version {FORMAT_VERSION} can be written.",
            advice="Name another table in sink.table.",
            subject=name,
        )
    columns = table.schema().fields
    _require_writable(name, _list_partitions(table), {each.name for each in columns if each.field_type == UUIDType()})
    known = [each.name for each in columns]
    _require_distinct(dict.fromkeys([*known, *schema.names]), name)
    absent = pa.schema([each for each in schema if each.name not in known])
    if absent.names:
        wanted = _pyarrow_to_schema_without_ids(absent).fields
        added = ", ".join(f"{write_path(each.name)} {name_type(each.field_type)}" for each in wanted)
        raise TargetChangedError(
            f"Table {name} lacks {', '.join(map(name_of, absent.names))}. Nothing was written.",
            advice=f"Let publications add new columns: sink.evolve: add\nOr add them yourself, as Spark does: "
            f"ALTER TABLE {write_path(*name.split('.'))} ADD COLUMNS ({added})",
            subject=name,
        )
    try:
        _check_pyarrow_schema_compatible(table.schema(), schema, format_version=FORMAT_VERSION)
    except ValueError as error:
        raise TargetChangedError(
            f"Table {name} cannot take the rows. Nothing was written.",
            why=str(error),
            advice="Alter the table, or correct source.schema or the transform.",
            subject=name,
        ) from error


def with_schema(table: Table, schema: Schema) -> Table:
    """Return the table as it would be with the schema."""
    metadata = table.metadata
    # Another change of the table may have taken the same number meanwhile.
    if schema == table.schema():
        return table
    schemas = [each for each in metadata.schemas if each.schema_id != schema.schema_id]
    changed = metadata.model_copy(
        update={
            "schemas": [*schemas, schema],
            "current_schema_id": schema.schema_id,
            "last_column_id": max(metadata.last_column_id, schema.highest_field_id),
        }
    )
    return Table(table.name(), changed, table.metadata_location, table.io, table.catalog, table.config)


def _require_distinct(columns: Iterable[str], table: str) -> None:
    """Raise TargetChangedError if columns differ by case alone: Spark could not read any of them."""
    by_lower: dict[str, str] = {}
    for each in columns:
        other = by_lower.setdefault(each.lower(), each)
        if other != each:
            raise TargetChangedError(
                f"Table {table} cannot have the columns {other!r} and {each!r}. Nothing was written.",
                why="For Spark they are the same, and it could not read the table.",
                advice="Give one of them another name, in source.schema or the transform.",
                subject=table,
            )


def warn_of_partitions(table: Table, name: str, declared: Sequence[DeclaredField]) -> None:
    """Log how a table is partitioned, if the pipeline file says otherwise: the file counts at its creation only."""
    found = _list_partitions(table)
    if declared and found != list(declared):
        logger.warning(
            "table %s stays partitioned by %s, because sink.partition_by, %s, counts only when a table is created",
            name,
            ", ".join(map(str, found)) or "nothing",
            ", ".join(map(str, declared)),
        )


def _list_partitions(table: Table) -> list[DeclaredField]:
    return [
        DeclaredField(name_of(str(table.schema().find_column_name(each.source_id))), str(each.transform))
        for each in table.spec().fields
    ]
