"""Which schema an id means: the registry says it once, and the ledger keeps it.

An id means one schema for ever. So a schema that is kept is good without the registry, and one that the registry has
changed since is an error: the records would become other values.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from time import sleep

from batchledger.model.errors import BatchledgerError, GuidsUnknownError, SchemaChangedError, SchemaRefusedError
from batchledger.model.records.writer_schemas import SchemaId, SubjectVersion, WriterSchema
from batchledger.ports import KeptSchemas, SchemaRegistry

ASKED_AGAIN = 3
"""How often a registry is asked again that knows an id not yet: one of several servers may learn of it later."""
LARGEST_ID = 2**31 - 1
"""Registries give away whole numbers of 32 bits with a sign."""
_SECONDS_BETWEEN = 0.5
_MOST_AWAITED = 10
"""So many unknown ids get that patience in a task. Any four bytes may be an id."""


@dataclass
class SchemaBook:
    """The schemas of one registry; pickled to the executors. Each task asks once for an id.

    ``trusts_kept``: whether the registry is left alone about what is kept, as it is once it has failed to answer.
    """

    name: str
    registry: SchemaRegistry
    kept: KeptSchemas
    wait: Callable[[float], None] = sleep
    trusts_kept: bool = False
    _found: dict[SchemaId | SubjectVersion, WriterSchema | str] = field(default_factory=dict)
    _awaited: int = 0
    _no_guids: GuidsUnknownError | None = None

    def find(self, wanted: SchemaId | SubjectVersion) -> WriterSchema | str:
        """Return the schema of an id, a GUID or a version, or why there is none, in words for the quarantine.

        Raises ServiceUnavailableError, also AccessRefusedError, when the registry cannot be asked and nothing is kept;
        SchemaChangedError when it has another schema than the one that is kept.
        """
        if wanted not in self._found:
            self._found[wanted] = self._find(wanted)
        return self._found[wanted]

    def _find(self, wanted: SchemaId | SubjectVersion) -> WriterSchema | str:
        schema_id = str(wanted) if isinstance(wanted, SubjectVersion) else wanted
        if isinstance(schema_id, int) and schema_id > LARGEST_ID:
            # Some registries answer to it as to a wrong address.
            return f"schema {schema_id} is unknown to the registry"
        kept = self.kept.find(schema_id)
        try:
            found = None if kept is not None and self.trusts_kept else self._fetch(wanted, is_kept=kept is not None)
        except SchemaRefusedError as error:
            if isinstance(error, GuidsUnknownError):
                self._no_guids = error
            if kept is None:
                return f"schema {schema_id} cannot be read: {error.why.rstrip('.') or error.message}"
            found = None
        except BatchledgerError:
            if kept is None:
                raise
            found, self.trusts_kept = None, True
        if kept is None:
            if found is None:
                return f"schema {schema_id} is unknown to the registry"
            kept = self.kept.keep(found)
        if found is not None and not kept.means_the_same_as(found):
            raise SchemaChangedError(
                f"Registry {self.name} has another schema {schema_id} than the one that records were decoded with. "
                "Nothing was written.",
                why="An id means one schema for ever. Records of the two would become each other's values.",
                advice="If the registry was set up anew, give it a connection of another name, and name that one in "
                "source.registry.",
                subject=self.name,
            )
        self.kept.note_use(schema_id)
        return kept

    def _fetch(self, wanted: SchemaId | SubjectVersion, *, is_kept: bool) -> WriterSchema | None:
        if isinstance(wanted, str) and self._no_guids is not None:
            # Any sixteen bytes may be a GUID, and the registry needs several requests to refuse one.
            raise self._no_guids.with_traceback(None)
        found = self.registry.fetch(wanted)
        if found is not None or is_kept or self._awaited >= _MOST_AWAITED:
            return found
        self._awaited += 1
        for _ in range(ASKED_AGAIN):
            self.wait(_SECONDS_BETWEEN)
            found = self.registry.fetch(wanted)
            if found is not None:
                break
        return found
