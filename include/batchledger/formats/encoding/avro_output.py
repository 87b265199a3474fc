"""The Avro format of an output topic: a registry knows the schema before the first value is written by it."""

from dataclasses import dataclass, field

import pyarrow as pa

from batchledger.formats.encoding.avro_schema import name_record, write_schema
from batchledger.formats.encoding.avro_values import AvroValues
from batchledger.model.records.columns import DELETED_COLUMN, PROVENANCE_COLUMNS
from batchledger.model.records.writer_schemas import SchemaType
from batchledger.ports import SchemaRegistrar

_UNREGISTERED = 0
"""No registry gives this id away. The values of a dry run have it: they are staged, and never sent."""


@dataclass(frozen=True)
class AvroOutput:
    """Registers the schema of ``topic`` under ``subject``, a schema once as long as this object lives."""

    registry: SchemaRegistrar = field(repr=False)
    subject: str
    topic: str
    _id_by_text: dict[str, int] = field(default_factory=dict, repr=False, compare=False)

    def open(self, schema: pa.Schema, *, is_dry_run: bool = False) -> AvroValues:
        """Return what writes rows with these columns; no value has the columns of provenance.

        A dry run registers nothing. Raises ConfigurationError if Avro cannot have a column, SchemaRefusedError with the
        registry's words, ServiceUnavailableError or AccessRefusedError.
        """
        columns = [each for each in schema if each.name not in (*PROVENANCE_COLUMNS, DELETED_COLUMN)]
        text = write_schema(name_record(self.topic), columns)
        if is_dry_run:
            return AvroValues(_UNREGISTERED)
        if text not in self._id_by_text:
            self._id_by_text[text] = self.registry.register(self.subject, SchemaType.AVRO, text)
        return AvroValues(self._id_by_text[text])
