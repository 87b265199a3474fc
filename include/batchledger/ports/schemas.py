"""Where the schemas of records come from that name theirs, where they are kept, and where new ones are registered."""

from typing import Protocol

from batchledger.model.records.writer_schemas import SchemaId, SchemaType, SubjectVersion, WriterSchema


class SchemaRegistry(Protocol):
    """The registry that gave the schemas their ids; pickled to the executors."""

    def fetch(self, wanted: SchemaId | SubjectVersion) -> WriterSchema | None:
        """Return the schema of an id, a GUID or a version, by that name; None if the registry says that it has none.

        Raises ServiceUnavailableError, AccessRefusedError, SchemaRefusedError or ConfigurationError. GuidsUnknownError
        is the answer to every GUID.
        """


class SchemaRegistrar(Protocol):
    """The registry that gives the schema of an output topic its id."""

    def register(self, subject: str, type_: SchemaType, text: str) -> int:
        """Return the id of a schema, registered under the subject unless it is there already: harmless to repeat.

        Raises SchemaRefusedError with the registry's words if it is not compatible or no schema at all; also
        ServiceUnavailableError, AccessRefusedError or ConfigurationError.
        """


class KeptSchemas(Protocol):
    """The schemas of one registry that an attempt or an earlier one has used; pickled to the executors."""

    def find(self, schema_id: SchemaId) -> WriterSchema | None:
        """Return what is kept of an id."""

    def keep(self, schema: WriterSchema) -> WriterSchema:
        """Keep a schema by its id, and return what is kept by then: another process may have been first."""

    def note_use(self, schema_id: SchemaId) -> None:
        """Note that records of the attempt name a kept schema, or that it is the reader's. Harmless to repeat."""
