"""Files of watches: they lie beside the pipeline files, have the key ``watch``, and are validated as these are."""

from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    ModelWrapValidatorHandler,
    PrivateAttr,
    ValidationError,
    WrapValidator,
    model_validator,
)
from typing_extensions import override

from batchledger.config.dags import DagConfig
from batchledger.config.faults import list_faults
from batchledger.config.pipeline_file import check_name, choose_file, is_watch_file
from batchledger.config.places import pipelines_folder
from batchledger.config.refusals import read_keys, refuse, require_file_name
from batchledger.config.schedules import check_cron
from batchledger.config.sections import Channels, SourceConfig
from batchledger.model.balance import HolePolicy
from batchledger.model.errors import ConfigurationError
from batchledger.model.records.rules import TombstonePolicy
from batchledger.settings.column_rules import nearest, require_scalar
from batchledger.settings.values import (
    ColumnName,
    ConnectionId,
    Count,
    Duration,
    KeyColumns,
    Section,
    Topic,
    lasting,
    parse_duration,
    unrepeated,
    written_as,
)

_ALL_KEYS = "The documentation lists every key: guides/watch"

Path_ = Annotated[
    str,
    written_as(
        r"[^\s.:\"]{1,63}(?:[.:][^\s.:\"]{1,63}){0,7}", "the name of a column, with parts behind points: meta.offset"
    ),
]

PRESETS: dict[str, tuple[str | None, str, str]] = {
    "batchledger": ("_topic", "_partition", "_offset"),
    "kafka_connect": ("__kafka_topic", "__kafka_partition", "__kafka_offset"),
    "connect_jdbc": ("__connect_topic", "__connect_partition", "__connect_offset"),
    "iceberg_sink": ("_kafka_metadata_topic", "_kafka_metadata_partition", "_kafka_metadata_offset"),
    "iceberg_sink_nested": ("_kafka_metadata.topic", "_kafka_metadata.partition", "_kafka_metadata.offset"),
    "redpanda": (None, "redpanda.partition", "redpanda.offset"),
    "snowflake": ("RECORD_METADATA.topic", "RECORD_METADATA.partition", "RECORD_METADATA.offset"),
    "clickpipes": ("_topic", "_partition", "_offset"),
}
"""Where well-known writers put topic, partition and offset of a record."""


class WatchSourceConfig(Section):
    """What the table should hold: the records of topics of one Kafka connection."""

    connection: ConnectionId = "kafka_default"
    """An Airflow connection of type `kafka`."""
    topics: Annotated[list[Topic], Field(min_length=1), unrepeated("topic")]
    """One or more. If there are several, a row has to say which one it is of: `coordinates.topic`."""
    holes: Annotated[HolePolicy, Field(strict=False)] = HolePolicy.TRANSACTIONAL
    """Which offsets the topic may have without a record: `none`, `transactional` or `compacted`. With `none` a look
    reads the records of Kafka if the table has no row there; otherwise it reads all that are new, so that a row of
    an aborted transaction is found.
    """


class KeyedSourceConfig(WatchSourceConfig, SourceConfig):
    """What a table without coordinates should hold: the records, and how these are decoded, as for a pipeline."""

    @model_validator(mode="after")
    def _rows_are_made_elsewhere(self) -> "KeyedSourceConfig":
        for each in sorted(_OF_PIPELINES & self.model_fields_set):
            advice = "; write since, beside source" if each == "start" else ""
            raise ValueError(f"{each}: this key is for pipelines: it says nothing of a table that others write{advice}")
        if self.tombstones is TombstonePolicy.KEEP:
            raise ValueError("tombstones: keep makes rows without a key; allowed: quarantine, skip, delete")
        return self


_OF_PIPELINES = {"start", "isolation", "unknown_fields", "protect", "options"}
_OF_DECODING = SourceConfig.model_fields.keys() - WatchSourceConfig.model_fields.keys() | {"schema"}


def _read_source(value: object, read: ModelWrapValidatorHandler[WatchSourceConfig]) -> WatchSourceConfig:
    """Read a source that says how its records are decoded as what it is."""
    if isinstance(value, dict) and value.keys() & _OF_DECODING:
        return KeyedSourceConfig.model_validate(value)
    return read(value)


class CompareConfig(Section):
    """What of a row has to be as new as the newest record of its key; write one of both."""

    version: ColumnName | None = None
    """A column that grows with each record of a key, such as `updated_at`: the row has at least the record's value."""
    columns: KeyColumns | None = None
    """Columns that have the values of the newest record."""

    @model_validator(mode="after")
    def _is_one(self) -> "CompareConfig":
        if (self.version is None) == (self.columns is None):
            raise ValueError("write one of version and columns")
        return self

    @property
    def names(self) -> tuple[str, ...]:
        """The columns that are compared for equality."""
        return tuple(self.columns or ())


class WatchTableConfig(Section):
    """The table that others write: in PostgreSQL by `connection`, or in a lake by `catalog`."""

    connection: ConnectionId | None = None
    """An Airflow connection of type `postgres`. Its user needs the right to read the table."""
    catalog: ConnectionId | None = None
    """An Airflow connection of type `iceberg`."""
    spark: ConnectionId | None = None
    """An Airflow connection of type `spark-connect`: Spark counts the rows of a table in a lake. Without it one process
    does, which refuses a table with rows that are deleted by equality.
    """
    name: Annotated[str, written_as(r"[^\s\"]{1,63}(?:\.[^\s\".]{1,63}){0,3}", "schema.table")]
    """The table, with its schema or namespace."""

    @model_validator(mode="after")
    def _has_one_place(self) -> "WatchTableConfig":
        if (self.connection is None) == (self.catalog is None):
            raise ValueError("write one of connection (PostgreSQL) and catalog (Iceberg)")
        if self.spark is not None and self.catalog is None:
            raise ValueError("spark: Spark counts tables of a catalog alone; remove it")
        return self


class CoordinatesConfig(Section):
    """The columns that say which record a row is of. A path leads into structs and JSON: `meta.offset`."""

    topic: Path_ | None = None
    """Leave it out if the table has the rows of one topic alone."""
    partition: Path_
    """The number of the partition."""
    offset: Path_
    """The offset: a whole number, or a text of digits."""


def _expand_preset(value: object) -> object:
    if isinstance(value, str):
        if value not in PRESETS:
            raise ValueError(f"there is no preset of this name; {nearest(value, list(PRESETS))}")
        return dict(zip(("topic", "partition", "offset"), PRESETS[value], strict=True))
    return value


class WatchLimitsConfig(Section):
    """What a look may cost the table's database."""

    timeout: Annotated[Duration, lasting(1, "write a duration from 1s to 1d", most=86400)] = 600.0
    """How long one statement may take."""
    max_rows: Count | None = None
    """A look that would read more rows, by the database's own estimate, is refused before it begins."""


def _check_since(value: object) -> object:
    if value == "earliest" or isinstance(value, datetime):
        return value
    with suppress(ValueError):
        return datetime.fromisoformat(str(value))
    with suppress(ValueError):
        return timedelta(seconds=parse_duration(value))
    raise ValueError("allowed are earliest, a moment such as 2026-11-20T00:00:00Z, or a duration such as 30d")


class WatchConfig(Section):
    """One file of a watch. Its fields are the keys of the file."""

    watch: Annotated[str, AfterValidator(check_name)]
    """The name of the watch, of its file and of its DAG."""
    source: Annotated[
        WatchSourceConfig, WrapValidator(_read_source, json_schema_input_type=WatchSourceConfig | KeyedSourceConfig)
    ]
    table: WatchTableConfig
    coordinates: (
        Annotated[CoordinatesConfig, BeforeValidator(_expand_preset, json_schema_input_type=CoordinatesConfig | str)]
        | None
    ) = None
    """Which columns say what record a row is of; or the name of a preset."""
    key: KeyColumns | None = None
    """For a table without coordinates: the columns that a row is known by, as records and table have them."""
    compare: CompareConfig | None = None
    """With `key`, for a table that has one row for each key, as the newest record says."""
    schedule: Annotated[str, AfterValidator(check_cron)] | None = None
    """When its DAG looks: a cron expression, or `@daily` and the like."""
    lateness: Annotated[Duration, lasting(0, "write a duration up to 30d", most=30 * 86400)] = 600.0
    """How long a row may take. A record that is younger is not missing."""
    since: Annotated[
        Literal["earliest"] | datetime | timedelta,
        BeforeValidator(_check_since, json_schema_input_type=str),
    ] = "earliest"
    """Where the watch begins: `earliest`, a moment, or a duration: `30d` proves what is younger, for tables that remove
    old rows.
    """
    recheck: Annotated[float, Field(ge=0, le=100, strict=False)] = 1.0
    """How many percent of what is proved each look proves again, so that a row that was deleted later is found."""
    fingerprint: Annotated[list[Path_], unrepeated("column")] = Field(default_factory=list)
    """Columns whose values are hashed when a row is proved. If a look that proves a part again finds another hash, rows
    were changed. For tables of PostgreSQL.
    """
    limits: WatchLimitsConfig = WatchLimitsConfig()
    alerts: Channels = Field(default_factory=list)
    """Ids of Airflow connections of type `apprise`, `smtp` or `http`."""
    ledger: ConnectionId = "warehouse"
    """The connection of the database that keeps what was proved. It need not be the table's."""
    dag: DagConfig = DagConfig()
    _folder: Path = PrivateAttr(default_factory=pipelines_folder)

    @override
    def model_post_init(self, context: Any, /) -> None:
        """Remember where the file lies."""
        self._folder = (context or {}).get("folder", self._folder)

    @model_validator(mode="after")
    def _topics_can_be_told_apart(self) -> "WatchConfig":
        if self.coordinates is not None and len(self.source.topics) > 1 and self.coordinates.topic is None:
            raise ValueError("coordinates.topic: with several topics a row has to say which one it is of")
        if self.fingerprint and self.table.connection is None:
            raise ValueError("fingerprint: allowed for a table of PostgreSQL, by table.connection")
        return self

    @model_validator(mode="after")
    def _rows_are_known_by_one(self) -> "WatchConfig":
        keyed = self.source if isinstance(self.source, KeyedSourceConfig) else None
        if (self.key is None) == (self.coordinates is None):
            raise ValueError("write one of coordinates and key")
        if self.key is None:
            if self.compare is not None:
                raise ValueError("compare: belongs to key")
            if keyed is not None:
                raise ValueError("source.schema: how records are decoded belongs to key; coordinates need it not")
            return self
        if keyed is None:
            raise ValueError("source.schema: with key, the source says how records are decoded, as a pipeline's")
        if self.fingerprint:
            raise ValueError("fingerprint: belongs to coordinates: only they say which rows a part has")
        if self.table.catalog is not None:
            raise ValueError("table.catalog: by key, tables in PostgreSQL alone can be asked; write coordinates")
        self._require_columns(keyed)
        return self

    def _require_columns(self, source: KeyedSourceConfig) -> None:
        """Raise ValueError unless the columns that are compared are there, and a deletion says which row it deletes."""
        require_scalar("key", self.key or [], source.columns)
        if self.compare is not None:
            compared = [self.compare.version] if self.compare.version else self.compare.names
            require_scalar("compare", compared, source.columns)
        if self.compare is None and source.tombstones is TombstonePolicy.DELETE:
            raise ValueError("source.tombstones: delete is for a table with one row for each key; write compare")
        outer = {each.name for each in source.outer.columns}
        if self.deletes and set(self.key or []) & outer and not set(self.key or []) <= outer:
            raise ValueError(
                "key: a tombstone has no value, so name columns of source.key and source.headers alone, or of "
                "source.schema alone; or write source.tombstones: skip"
            )

    @property
    def places(self) -> CoordinatesConfig:
        """The coordinates. Raises ConfigurationError if the table has none."""
        if self.coordinates is None:
            raise ConfigurationError(
                f"{self.file}: the rows of {self.table.name} are known by key, not by offset.",
                advice="Write coordinates instead of key, if the table has them.",
                subject=self.table.name,
            )
        return self.coordinates

    @property
    def deletes(self) -> bool:
        """Whether a record without a value deletes the row of its key."""
        source = self.source
        if self.compare is None or not isinstance(source, KeyedSourceConfig):
            return False
        return "tombstones" not in source.model_fields_set or source.tombstones is TombstonePolicy.DELETE

    @property
    def name(self) -> str:
        """The name of the watch."""
        return self.watch

    @property
    def file(self) -> Path:
        """The file. It has the watch's name."""
        return self._folder / f"{self.watch}.yaml"

    @property
    def since_moment(self) -> datetime | timedelta | None:
        """Where the watch begins: None for the start of the log."""
        if isinstance(self.since, str):
            return None
        if isinstance(self.since, datetime) and self.since.tzinfo is None:
            return self.since.replace(tzinfo=UTC)
        return self.since

    @property
    def subject(self) -> str:
        """What is watched, in one line."""
        where = self.table.connection or self.table.catalog
        places, compare = self.coordinates, self.compare
        by = f"key {', '.join(self.key or [])}"
        if places is not None:
            by = f"{places.topic or '-'}, {places.partition}, {places.offset}"
        elif compare is not None:
            by += f", as new as {compare.version or ', '.join(compare.names)}"
        hashed = f", {', '.join(self.fingerprint)} hashed" if self.fingerprint else ""
        return (
            f"{self.source.connection}/{', '.join(sorted(self.source.topics))} in {where}/{self.table.name} by {by}; "
            f"holes {self.source.holes}{hashed}"
        )


def load_watch(name: str) -> WatchConfig:
    """Return the watch of that name. Raises UnknownPipelineError with the nearest name."""
    advice = "A file of a watch begins with the key watch: batchledger watch --help"
    return read_watch_file(choose_file(is_watch_file, name, "watch", advice))


def read_watch_file(path: Path) -> WatchConfig:
    """Read and validate one file. Raises FileRefusedError with its mistakes, each with file, line, key and value."""
    document = read_keys(
        path, "a watch: it has no keys; write at least watch, source, table, and coordinates or key", _ALL_KEYS
    )
    try:
        watch = WatchConfig.model_validate(document.content, context={"folder": path.parent})
    except ValidationError as error:
        refuse(path, list_faults(error, document, WatchConfig, []), _ALL_KEYS)
    require_file_name(path, document, "watch", watch.watch, _ALL_KEYS)
    return watch
