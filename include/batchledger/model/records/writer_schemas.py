"""The schema that a record was written with, as a schema registry has it: with everything that it refers to. Pure."""

import hashlib
import json
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Self

from typing_extensions import override

SchemaId = int | str
"""How a schema is called: a number of the registry's own, the GUID of the content in small letters with hyphens, or the
text of a ``SubjectVersion``.
"""

FIRST_MESSAGE = (0,)
"""The place of the first message of a schema; only Protobuf has others."""


@dataclass(frozen=True, slots=True)
class SubjectVersion:
    """A version of a subject: which schema a registry has there. The ledger keeps that one by this name."""

    subject: str
    version: int

    @override
    def __str__(self) -> str:
        return f"{self.subject} version {self.version}"


class SchemaType(StrEnum):
    """The languages of schemas that a registry knows, by its own words."""

    AVRO = "AVRO"
    PROTOBUF = "PROTOBUF"
    JSON = "JSON"


class Framing(StrEnum):
    """How a record names the schema that it was written with.

    ``CONFLUENT``: a byte 0 and four bytes of the id stand before the datum. ``HEADER``: they are the value of a header,
    or a byte 1 and the 16 bytes of a GUID are. ``NONE``: it does not; all records have one schema.
    """

    CONFLUENT = "confluent"
    HEADER = "header"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Reference:
    """A schema that another one uses. ``name`` is what the other one calls it: an Avro name, a Protobuf import."""

    name: str
    text: str


@dataclass(frozen=True, slots=True)
class WriterSchema:
    """A schema by its id. ``references`` has all that it uses, also indirectly: each before what uses it."""

    id: SchemaId
    type: SchemaType
    text: str
    references: tuple[Reference, ...] = ()

    @property
    def named_texts(self) -> tuple[tuple[str, str], ...]:
        """The references as pairs of name and text."""
        return tuple((each.name, each.text) for each in self.references)

    @property
    def stored(self) -> str:
        """The text to be stored. Equal schemas have the same one, in ASCII: a database takes it whatever it holds."""
        references = [{"name": each.name, "text": each.text} for each in self.references]
        content = {"id": self.id, "type": self.type, "text": self.text, "references": references}
        return json.dumps(content, separators=(",", ":"))

    @property
    def fingerprint(self) -> str:
        """The SHA-256 of the stored text, in hexadecimal digits."""
        return hashlib.sha256(self.stored.encode()).hexdigest()

    def means_the_same_as(self, other: "WriterSchema") -> bool:
        """Whether another schema, perhaps formatted by another registry, describes the same records."""
        return self == other or bool(self._meaning == other._meaning)

    @property
    def _meaning(self) -> Any:
        texts = [(each.name, _take_apart(each.text)) for each in self.references]
        return self.id, self.type, texts, _take_apart(self.text)

    @classmethod
    def from_stored(cls, text: str) -> Self:
        """Return the schema whose stored text this is. Raises ValueError if it is none."""
        content = json.loads(text)
        try:
            references = tuple(Reference(_text(each["name"]), _text(each["text"])) for each in content["references"])
            found = cls(_id(content["id"]), SchemaType(content["type"]), _text(content["text"]), references)
        except (KeyError, TypeError) as error:
            raise ValueError(f"no stored schema: {error!r}") from error
        return found


def _take_apart(text: str) -> Any:
    """Return what a schema says, without its formatting: its JSON, or else its words."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text.split()


@dataclass(frozen=True, slots=True)
class UsedSchema:
    """A schema of a ``registry`` that a pipeline's records were written with, and the batches that had such records.

    It counts also if all of these records were set aside: to replay them takes the schema.
    """

    registry: str
    id: SchemaId
    fingerprint: str
    first_used_at: datetime
    first_batch_id: int
    last_batch_id: int
    batches: int


def _id(value: Any) -> SchemaId:
    return value if isinstance(value, int) else _text(value)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{type(value).__name__} instead of a text")
    return value
