"""Where the schemas of records come from that name theirs, and where they are kept."""

from typing import Protocol

from batchledger.model.records.writer_schemas import WriterSchema


class SchemaRegistry(Protocol):
    """The registry that gave the schemas their ids; pickled to the executors."""

    def fetch(self, schema_id: int) -> WriterSchema | None:
        """Return the schema of an id, None if the registry says that it has no such id.

        Raises ServiceUnavailableError, AccessRefusedError, SchemaRefusedError or ConfigurationError.
        """


class KeptSchemas(Protocol):
    """The schemas of one registry that an attempt or an earlier one has used; pickled to the executors."""

    def find(self, schema_id: int) -> WriterSchema | None:
        """Return what is kept of an id."""

    def keep(self, schema: WriterSchema) -> WriterSchema:
        """Keep a schema by its id, and return what is kept by then: another process may have been first."""

    def note_use(self, schema_id: int) -> None:
        """Note that records of the attempt were written with a kept schema. Harmless to repeat."""
