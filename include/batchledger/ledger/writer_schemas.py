"""The schemas that records were written with, as the ledger keeps them."""

from dataclasses import dataclass, field

from typing_extensions import override

from batchledger.database.transactions import read_statement, transaction
from batchledger.model.batch import Attempt
from batchledger.model.records.writer_schemas import SchemaId, UsedSchema, WriterSchema
from batchledger.ports import KeptSchemas


@dataclass(frozen=True)
class ReadSchemas(KeptSchemas):
    """The schemas of the ``registry`` of this name, for a look at records, which changes nothing."""

    dsn: str = field(repr=False)
    registry: str

    @override
    def find(self, schema_id: SchemaId) -> WriterSchema | None:
        with transaction(self.dsn, f"look for schema {schema_id} of {self.registry}") as cursor:
            cursor.execute(
                "select definition from batchledger.writer_schema where registry = %s and id = %s",
                [self.registry, str(schema_id)],
            )
            return next((WriterSchema.from_stored(text) for (text,) in cursor), None)

    @override
    def keep(self, schema: WriterSchema) -> WriterSchema:
        return schema

    @override
    def note_use(self, schema_id: SchemaId) -> None:
        """Note nothing."""


@dataclass(frozen=True)
class PostgresKeptSchemas(ReadSchemas):
    """The schemas of a registry for an attempt; holds only text, so that it can be pickled."""

    batch_id: int
    number: int

    @classmethod
    def of(cls, dsn: str, registry: str, attempt: Attempt) -> "PostgresKeptSchemas":
        """Return the schemas of a registry for an attempt."""
        return cls(dsn, registry, attempt.batch.batch_id, attempt.number)

    @override
    def keep(self, schema: WriterSchema) -> WriterSchema:
        with transaction(self.dsn, f"keep schema {schema.id} of {self.registry}") as cursor:
            cursor.execute(
                "insert into batchledger.writer_schema (registry, id, fingerprint, definition) "
                "values (%s, %s, %s, %s) on conflict (registry, id) do nothing",
                [self.registry, str(schema.id), schema.fingerprint, schema.stored],
            )
        return self.find(schema.id) or schema

    @override
    def note_use(self, schema_id: SchemaId) -> None:
        with transaction(self.dsn, f"note the use of schema {schema_id} of {self.registry}") as cursor:
            cursor.execute(
                "insert into batchledger.attempt_writer_schema (batch_id, number, registry, id) "
                "values (%s, %s, %s, %s) on conflict do nothing",
                [self.batch_id, self.number, self.registry, str(schema_id)],
            )


def list_used_schemas(dsn: str, pipeline: str, limit: int = 50) -> list[UsedSchema]:
    """Return the schemas that records of a pipeline's batches have named, and the readers'; the last used first.

    What became of these records plays no part: they may be set aside, or their batch may never be published.
    """
    with transaction(dsn, f"list the writers' schemas of {pipeline}") as cursor:
        cursor.execute(read_statement(__package__, "list_used_schemas"), {"pipeline": pipeline, "limit": limit})
        return [
            UsedSchema(registry, int(schema_id) if schema_id.isdigit() else schema_id, *others)
            for registry, schema_id, *others in cursor
        ]
