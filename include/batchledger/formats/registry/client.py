"""Schemas of a registry, by their ids: whole, with everything that they refer to.

``None`` means that the registry itself says that it does not know. A registry that cannot be asked is always an error.
A registry of several servers may learn of a new id later on one of them, and says until then that it does not know.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

import httpx
from typing_extensions import override

from batchledger.formats.registry.requests import Session, open_session
from batchledger.model.errors import (
    BatchledgerError,
    GuidsUnknownError,
    RightMissingError,
    SchemaRefusedError,
    ServiceUnavailableError,
)
from batchledger.model.quoting import quote as quote_text
from batchledger.model.records.registry_settings import RegistrySettings
from batchledger.model.records.writer_schemas import Reference, SchemaId, SchemaType, SubjectVersion, WriterSchema
from batchledger.ports import SchemaRegistrar, SchemaRegistry

MOST_REFERENCES = 500
MOST_CHARACTERS = 4 * 2**20
"""How long the text of a schema may be, together with all that it refers to; Kafka's own bound on a record is 1 MiB."""

_NO_WAY = (httpx.codes.BAD_REQUEST, httpx.codes.NOT_FOUND, httpx.codes.METHOD_NOT_ALLOWED)
_SUBJECT_UNKNOWN, _VERSION_UNKNOWN, _SCHEMA_UNKNOWN = 40401, 40402, 40403


@dataclass(frozen=True, slots=True)
class RegisteredReference:
    """Where the registry has a schema that another one calls ``name``."""

    name: str
    subject: str
    version: int


@dataclass(frozen=True)
class Registry(SchemaRegistry, SchemaRegistrar):
    """A registry. It holds no connection between two calls, so it pickles, and survives a fork."""

    settings: RegistrySettings

    @override
    def fetch(self, wanted: SchemaId | SubjectVersion) -> WriterSchema | None:
        """Return the schema of an id or GUID, or of a version of a subject, by that name.

        None if the registry says that it has no such schema.

        It is a request, and one more for each reference. A request takes two attempts at most, and
        ``timeout_seconds`` bounds every wait of them. Raises
        ServiceUnavailableError, AccessRefusedError, SchemaRefusedError or ConfigurationError.
        """
        with open_session(self.settings, f"fetch schema {wanted}") as session:
            if isinstance(wanted, SubjectVersion):
                found = _ask_for_version(session, wanted)
                return None if found is None else _complete(session, str(wanted), found)
            found = _ask_for_guid(session, wanted) if isinstance(wanted, str) else _ask_for_id(session, wanted)
            return None if found is None else _complete(session, wanted, found)

    def require_answer(self) -> None:
        """Raise an error if no registry answers there, or if it refuses the login; a right may be missing."""
        with open_session(self.settings, "ask for a schema") as session:
            _require_registry(session)

    def find_latest(self, subject: str) -> WriterSchema | None:
        """Return the latest schema of a subject, None if the registry says that it has no such subject."""
        with open_session(self.settings, f"fetch the latest schema of subject {subject}") as session:
            path = f"/subjects/{quote(subject, safe='')}/versions/latest"
            found = session.ask("GET", path, unknown=(_SUBJECT_UNKNOWN, _VERSION_UNKNOWN))
            return None if found is None else _complete(session, _read_id(session, found), found)

    @override
    def register(
        self, subject: str, type_: SchemaType, text: str, references: Sequence[RegisteredReference] = ()
    ) -> int:
        """Return the id of a schema, registered under the subject unless it is there already: harmless to repeat.

        Raises SchemaRefusedError with the registry's words if it is not compatible or no schema at all.
        """
        content = {
            "schemaType": str(type_),
            "schema": text,
            "references": [
                {"name": each.name, "subject": each.subject, "version": each.version} for each in references
            ],
        }
        with open_session(self.settings, f"register a schema under subject {subject}") as session:
            found = session.ask("POST", f"/subjects/{quote(subject, safe='')}/versions", content=content)
            return _read_id(session, found or {})


@dataclass
class _Collection:
    """The references of one schema, in the order in which they are complete."""

    session: Session
    text_by_name: dict[str, str] = field(default_factory=dict)
    text_by_place: dict[tuple[str, int], str | None] = field(default_factory=dict)
    """None while its own references are being collected."""
    characters: int = 0

    def add(self, references: Sequence[RegisteredReference]) -> None:
        """Add each with what it refers to, and that first."""
        for each in references:
            place = each.subject, each.version
            if place not in self.text_by_place:
                self.text_by_place[place] = None
                found = self._load(each)
                loaded = _read_text(self.session, found)
                self.require_room(loaded)
                self.add(_read_references(self.session, found))
                self.text_by_place[place] = loaded
            text = self.text_by_place[place]
            if text is None:
                raise self._refuse(f"has a schema that refers to itself: {quote_text(each.name)}")
            if each.name not in self.text_by_name:
                self.require_room(text)
            if self.text_by_name.setdefault(each.name, text) != text:
                raise self._refuse(f"has two schemas that this one calls {quote_text(each.name)}")

    def require_room(self, text: str) -> None:
        """Count a text, under each of its names. Raises SchemaRefusedError if all together are too long."""
        self.characters += len(text)
        if self.characters > MOST_CHARACTERS:
            raise self._refuse(f"has a schema of more than {MOST_CHARACTERS / 2**20:.0f} MiB, with what it refers to")

    def _load(self, reference: RegisteredReference) -> Mapping[str, Any]:
        if max(len(self.text_by_place), len(self.text_by_name)) > MOST_REFERENCES:
            raise self._refuse(f"has a schema with more than {MOST_REFERENCES} references")
        shown = quote_text(reference.subject)
        try:
            reference.subject.encode()
        except UnicodeEncodeError:
            raise self._refuse(f"has a schema that refers to the subject {shown}, which is no text") from None
        found = _ask_for_version(self.session, SubjectVersion(reference.subject, reference.version))
        if found is not None:
            return found
        lost = f"has the schema, but not what it refers to: version {reference.version} of subject {reference.subject}"
        # The registry's own word: a person has to register it again, and nothing else waits for that.
        raise self.session.fail(SchemaRefusedError, lost, "Register it there again.")

    def _refuse(self, what: str) -> BatchledgerError:
        return self.session.fail(SchemaRefusedError, what, "Register a schema whose references lead to one end.")


def _ask_for_id(session: Session, schema_id: int) -> Mapping[str, Any] | None:
    return session.ask("GET", f"/schemas/ids/{schema_id}", unknown=(_SCHEMA_UNKNOWN,))


def _ask_for_guid(session: Session, guid: str) -> Mapping[str, Any] | None:
    """Return the answer, None if the registry says that it has no such schema.

    Raises GuidsUnknownError if the registry is there and has no way to GUIDs, and SchemaRefusedError if it refuses this
    one to a login that may read ids. Otherwise one record with a GUID would stop the pipeline for good.
    """
    path = f"/schemas/guids/{guid}"
    try:
        return session.ask("GET", path, unknown=(_SCHEMA_UNKNOWN,))
    except RightMissingError:
        _ask_for_id(session, 1)
        advice = "Grant the user of its connection the right to read it, or let producers write ids into the header."
        raise session.fail(SchemaRefusedError, "refuses it by its GUID, and answers requests by ids", advice) from None
    except ServiceUnavailableError:
        if session.look_at(path)[0] not in _NO_WAY:
            raise
    _require_registry(session)
    raise session.fail(
        GuidsUnknownError, "knows schemas by their ids alone", "Let producers write ids into the header."
    )


def _require_registry(session: Session) -> None:
    """Raise an error if the address is wrong or the registry is away, and none if this login may not read the id."""
    try:
        _ask_for_id(session, 1)
    except (RightMissingError, ServiceUnavailableError):
        # A wrong path has no code, or its status for one.
        if session.look_at("/schemas/ids/1")[1] in (None, httpx.codes.NOT_FOUND):
            raise


def _ask_for_version(session: Session, wanted: SubjectVersion) -> Mapping[str, Any] | None:
    # Also one that is marked as deleted: an older schema or an older record may still need it.
    path = f"/subjects/{quote(wanted.subject, safe='')}/versions/{wanted.version}?deleted=true"
    return session.ask("GET", path, unknown=(_SUBJECT_UNKNOWN, _VERSION_UNKNOWN))


def _complete(session: Session, schema_id: SchemaId, found: Mapping[str, Any]) -> WriterSchema:
    """Return the schema with its references resolved."""
    named = found.get("schemaType") or SchemaType.AVRO
    if named not in tuple(SchemaType):
        advice = f"Write records by a schema of type {', '.join(SchemaType)}."
        raise session.fail(SchemaRefusedError, f"has it as a schema of type {quote_text(named)}", advice)
    text = _read_text(session, found)
    collected = _Collection(session)
    collected.require_room(text)
    collected.add(_read_references(session, found))
    references = tuple(Reference(*each) for each in collected.text_by_name.items())
    return WriterSchema(schema_id, SchemaType(named), text, references)


def _read_text(session: Session, found: Mapping[str, Any]) -> str:
    text = found.get("schema")
    if not isinstance(text, str):
        raise _broken(session, "without the text of a schema")
    return text


def _read_id(session: Session, found: Mapping[str, Any]) -> int:
    schema_id = found.get("id")
    if not isinstance(schema_id, int):
        raise _broken(session, "without the id of a schema")
    return schema_id


def _read_references(session: Session, found: Mapping[str, Any]) -> list[RegisteredReference]:
    try:
        return [
            RegisteredReference(str(each["name"]), str(each["subject"]), int(each["version"]))
            for each in found.get("references") or ()
        ]
    except (KeyError, TypeError, ValueError, OverflowError):
        raise _broken(session, "with references that cannot be read") from None


def _broken(session: Session, how: str) -> BatchledgerError:
    return session.fail(ServiceUnavailableError, f"answered {how}", "Check its address. Then run the step again.")
