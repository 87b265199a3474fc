"""The kinds of sinks: the only list of them. Its order is the one in which people read what ``sink.type`` may be."""

from typing import Annotated, get_args

from pydantic import BeforeValidator, Field

from batchledger.sinks.iceberg.kind import IcebergSinkConfig
from batchledger.sinks.kind import SinkSection
from batchledger.sinks.table.kind import PostgresSinkConfig
from batchledger.sinks.topic.kind import KafkaSinkConfig

_Kind = PostgresSinkConfig | KafkaSinkConfig | IcebergSinkConfig

KINDS: tuple[type[SinkSection], ...] = get_args(_Kind)


def _name_type(section: object) -> object:
    """Let a section without a type be one of a table, as it was before there were others."""
    return {"type": "postgres", **section} if isinstance(section, dict) else section


SinkConfig = Annotated[_Kind, Field(discriminator="type"), BeforeValidator(_name_type)]
"""The section ``sink`` of a pipeline file."""


def find_kind(type_: str) -> type[SinkSection] | None:
    """Return the kind that ``type`` names in a pipeline file; None if it names none."""
    return next((each for each in KINDS if type_ in get_args(each.model_fields["type"].annotation)), None)
