"""What a kind of sink is to the rest of the package: a section of the pipeline file that can build itself.

A kind is a folder here. Its ``kind.py`` has the one class, and imports nothing heavy before it is asked to: DAG files
are parsed through it. ``kinds.py`` lists the kinds, and no other module outside of a folder names one.
"""

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, get_args

from pydantic import model_validator

from batchledger.model.batch import Attempt, Batch, DeliveryMode
from batchledger.model.capabilities import Capabilities
from batchledger.model.claims import TargetClaim
from batchledger.model.datasets import Dataset
from batchledger.model.records.columns import Column
from batchledger.model.records.rules import Deduplication, SequenceRule, SinkMode
from batchledger.model.stream_address import StreamAddress
from batchledger.ports import RowStream, Sink
from batchledger.settings.values import NamedConnection, Section

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from batchledger.settings.connections import Connection

StreamOpener = Callable[[StreamAddress, Attempt], AbstractContextManager[RowStream]]


class RowAdoption(Protocol):
    """Makes rows that others have written the rows of one batch, in a transaction of the ledger.

    Each method raises DecisionRefusedError if the table is not fit for it.
    """

    def explain(self, cursor: Any) -> tuple[Sequence[str], Sequence[str]]:
        """Return the statements of ``take``, and the ones that undo them."""

    def lock(self, cursor: Any) -> None:
        """Let no row be written until the transaction ends."""

    def list_rows(self, cursor: Any) -> Sequence[tuple[str, int, int, int]]:
        """Return topic, number, first and last offset of each partition that has rows."""

    def claim(self, cursor: Any) -> TargetClaim:
        """Return the claim to the table."""

    def take(self, cursor: Any, batch_id: int) -> None:
        """Let all rows be of the batch."""


@dataclass(frozen=True, slots=True)
class SinkContext:
    """What a sink of one pipeline is built with, besides its section. ``dsn`` leads to the database of the ledger.

    ``load`` takes a key of the file, the id of a connection and its types, and returns the connection. ``lend_spark``
    lends a session that no other user of the name shares; None if the pipeline keeps no session.
    """

    pipeline: str
    dsn: str = field(repr=False)
    load: "Callable[..., Connection]" = field(repr=False)
    read_secret: Callable[[], bytes] = field(repr=False)
    lend_spark: "Callable[[str], AbstractContextManager[SparkSession | None]]" = field(repr=False)
    deduplication: Deduplication | None
    sequence: SequenceRule | None
    has_checks: bool


class SinkSection(Section):
    """The section ``sink`` of one kind, whose fields are its keys. ``type`` names the kind there.

    Six members are its own. The others tell what most kinds have: any declared columns fit, no rows share the ledger's
    database, and the target uses no connection. Where a default would be a promise, it promises nothing.
    """

    extra: ClassVar[str | None] = None
    """The extra of the package that has what this kind needs."""
    worker_modules: ClassVar[tuple[str, ...]] = ()
    """What Spark's tasks need of this kind, and is slow to import: workers are forked from a process that has it."""

    @model_validator(mode="before")
    @classmethod
    def _has_its_type(cls, keys: Any) -> Any:
        """In Python the class says it. In a file the key ``type`` has chosen the class."""
        (type_,) = get_args(cls.model_fields["type"].annotation)
        return {"type": type_, **keys} if isinstance(keys, dict) else keys

    @property
    @abstractmethod
    def capabilities(self) -> Capabilities:
        """What the target can do: the constant of the kind, which its sink has, too. Pages offer orders by it."""

    @property
    @abstractmethod
    def target(self) -> str:
        """The target as people write it."""

    @property
    @abstractmethod
    def alias(self) -> str:
        """The target as an asset of Airflow, by the file alone: a connection, ``/``, and the place there."""

    @abstractmethod
    def build(self, context: SinkContext) -> Sink:
        """Return the sink. Opens nothing yet. Raises ConfigurationError."""

    def find_stream(self, context: SinkContext) -> StreamOpener | None:  # noqa: ARG002
        """Return what listens there and opens a stream of rows into the target; None if there is no such way."""
        return None

    @abstractmethod
    def find_published(self, context: SinkContext, batch: Batch) -> tuple[Dataset, int | None]:
        """Return the names of the target that has a published batch, and the snapshot that has it; None without any.

        Raises ConfigurationError, and what the target raises.
        """

    @property
    @abstractmethod
    def sink_mode(self) -> SinkMode:
        """What becomes of a row, and so whether a replay takes the place of it (``SinkMode.can_replace``)."""

    @property
    def key_columns(self) -> tuple[str, ...]:
        """The columns that tell rows or records apart; none if nothing does."""
        return ()

    @property
    def takes_new_columns(self) -> bool:
        """Whether the target takes rows with columns that it does not have."""
        return False

    @property
    def proves_joined_batches(self) -> bool:
        """Whether the target proves as much when the ledger has joined old batches of its rows."""
        return False

    @property
    def ledger_connection(self) -> str | None:
        """The connection of the ledger's database, if the target is in it."""
        return None

    @property
    def ledger_table(self) -> tuple[str, str] | None:
        """Schema and name of the target, if it is a table of the ledger's database."""
        return None

    def adoption(self, places: Mapping[str, str], topic: str) -> "RowAdoption | None":  # noqa: ARG002
        """Return what makes rows of others the target's own; None if the kind has none.

        ``places`` are the columns of the coordinates by our own names; ``topic`` is the one of rows that name none.
        """
        return None

    def list_connections(self) -> Iterable[NamedConnection]:
        """Return the connections that lead to the target, without the ledger's."""
        return ()

    def require_fit(self, sources: Sequence[str], columns: Sequence[Column] | None, delivery: DeliveryMode) -> None:
        """Raise ValueError, with the key of the file first, if the section does not fit what it gets.

        ``sources`` are topics as ``alias`` has them. ``columns`` is None if a transform makes the rows.
        """

    @classmethod
    def list_unencrypted(cls, connection: "Connection") -> Iterable[tuple[str, str]]:  # noqa: ARG003
        """Return each host that gets a login unencrypted, and what to do; of connections of the kind's own type."""
        return ()

    @classmethod
    def prepare_question(cls, connection: "Connection") -> Callable[[], str] | None:  # noqa: ARG003
        """Return what asks behind a connection of the kind's own type, and returns what it has found; else None.

        The question changes nothing. Both raise ConfigurationError, and the question ServiceUnavailableError, too.
        """
        return None
