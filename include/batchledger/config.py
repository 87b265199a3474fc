"""Pipeline files into frozen configuration, completely validated before any connection is opened.

The one place that reads the environment: ``BATCHLEDGER_PIPELINES`` names the folder of pipeline files. A message
names file, key, value and the allowed or nearest name. Imports no Spark, Kafka or Great Expectations, because Airflow
parses DAG files through this module.
"""

import difflib
import math
import os
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import yaml
from croniter import croniter
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PrivateAttr,
    ValidationError,
    model_validator,
)

from batchledger.accounting import HolePolicy
from batchledger.batch import DeliveryMode
from batchledger.check_entries import CheckEntry, expand_suites, name_checks
from batchledger.checking import OnFailure, RequestedCheck, Severity
from batchledger.columns import INTEGER_TYPES, Column, parse_columns
from batchledger.errors import ConfigurationError
from batchledger.kafka.client_options import CONSUMER_OPTIONS, explain_refusal
from batchledger.pipeline import Deadlines, PipelineRules
from batchledger.planning import Limits, StartPolicy
from batchledger.record_rules import (
    Deduplication,
    DuplicatePolicy,
    SequenceRule,
    SinkMode,
    TombstonePolicy,
    Upsert,
    VersionBy,
)

PIPELINES_VARIABLE = "BATCHLEDGER_PIPELINES"
DEFAULT_PIPELINES_FOLDER = Path(__file__).resolve().parents[1] / "pipelines"

SCHEDULE_PRESETS = ("@once", "@hourly", "@daily", "@weekly", "@monthly", "@quarterly", "@yearly", "@continuous")

_DURATION = re.compile(r"(\d+)\s*(s|m|h|d)")
_LONGEST_MEMORY_SECONDS = 36_500 * 86_400
_SECONDS_BY_UNIT = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def _parse_duration(value: object) -> object:
    if isinstance(value, int | float) and 0 <= value < math.inf:
        return float(value)
    match = _DURATION.fullmatch(str(value))
    if match is None:
        raise ValueError("a duration is a number and a unit: 30s, 5m, 2h or 7d")
    return float(match[1]) * _SECONDS_BY_UNIT[match[2]]


def _check_cron(value: str) -> str:
    if value not in SCHEDULE_PRESETS and not croniter.is_valid(value):
        raise ValueError(f'not a cron expression; write for example "*/5 * * * *", or {", ".join(SCHEDULE_PRESETS)}')
    return value


def _check_columns(value: str) -> str:
    parse_columns(value)
    return value


def _check_start(value: object) -> object:
    """Accept earliest, latest or an ISO timestamp; YAML may have made a datetime of it already."""
    if value in (StartPolicy.EARLIEST, StartPolicy.LATEST):
        return value
    moment = value if isinstance(value, datetime) else _parse_moment(str(value))
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _parse_moment(text: str) -> datetime:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise ValueError("allowed are earliest, latest, or a timestamp such as 2026-11-21T00:00:00Z") from None


def _check_options(value: object) -> object:
    if not isinstance(value, dict):
        return value
    for option, setting in value.items():
        reason = explain_refusal(str(option), CONSUMER_OPTIONS)
        if reason is None and option != "client.rack" and not str(setting).isdecimal():
            reason = f"{option} must be a whole number, found {setting!r}"
        if reason is not None:
            raise ValueError(reason)
    return {str(option): str(setting) for option, setting in value.items()}


def _check_topics(value: list[str]) -> list[str]:
    repeated = [topic for topic in value if value.count(topic) > 1]
    if repeated:
        raise ValueError(f"topic {repeated[0]!r} is named twice")
    return value


def _check_key(value: list[str]) -> list[str]:
    repeated = [column for column in value if value.count(column) > 1]
    if repeated:
        raise ValueError(f"column {repeated[0]!r} is named twice")
    return value


def _check_alerts(value: list[str]) -> list[str]:
    repeated = [connection for connection in value if value.count(connection) > 1]
    if repeated:
        raise ValueError(f"connection {repeated[0]!r} is named twice")
    return value


def _check_deadline(value: float) -> float:
    if not 1 <= value <= _LONGEST_MEMORY_SECONDS:
        raise ValueError("write a duration from 1s to 36500d")
    return value


def _check_remember(value: float) -> float:
    if not 0 < value <= _LONGEST_MEMORY_SECONDS:
        raise ValueError("write how long a key is remembered, from 1s to 36500d")
    return value


def _check_keep(value: float) -> float:
    if value < _SECONDS_BY_UNIT["h"]:
        raise ValueError("write how long a record is kept in quarantine: 1h or more")
    return value


def _check_target(value: float) -> float:
    if value < 1:
        raise ValueError("write how long a batch should take: 1s or more")
    return value


Duration = Annotated[float, BeforeValidator(_parse_duration)]
Deadline = Annotated[Duration, AfterValidator(_check_deadline)]
Topic = Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,249}$")]
KeyColumns = Annotated[
    list[Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_]*$")]], Field(min_length=1), AfterValidator(_check_key)
]
ConnectionId = Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]{1,200}$")]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class SourceConfig(_Section):
    """What is read: topics of one Kafka connection, and how a record is decoded."""

    connection: ConnectionId = "kafka_default"
    topics: Annotated[list[Topic], Field(min_length=1), AfterValidator(_check_topics)]
    format: Literal["json"] = "json"
    record_schema: Annotated[str, Field(alias="schema"), AfterValidator(_check_columns)]
    start: Annotated[Literal["earliest", "latest"] | datetime, BeforeValidator(_check_start)] = "earliest"
    isolation: Literal["read_committed"] = "read_committed"
    holes: Annotated[HolePolicy, Field(strict=False)] = HolePolicy.NONE
    tombstones: Annotated[TombstonePolicy, Field(strict=False)] = TombstonePolicy.QUARANTINE
    options: Annotated[dict[str, str], BeforeValidator(_check_options)] = {}

    @property
    def columns(self) -> tuple[Column, ...]:
        """The declared columns."""
        return parse_columns(self.record_schema)


class SinkConfig(_Section):
    """Where the rows go."""

    type: Literal["postgres"] = "postgres"
    connection: ConnectionId = "warehouse"
    table: Annotated[str, Field(pattern=r"^[a-z_][a-z0-9_]{0,62}(\.[a-z_][a-z0-9_]{0,62})?$")]
    mode: Annotated[SinkMode, Field(strict=False)] = SinkMode.APPEND
    key: KeyColumns | None = None
    version: Annotated[VersionBy, Field(strict=False)] | None = None

    @model_validator(mode="after")
    def _mode_fits(self) -> "SinkConfig":
        if self.mode is SinkMode.UPSERT and self.key is None:
            raise ValueError("mode upsert needs key: the columns that tell the rows apart")
        if self.mode is SinkMode.APPEND and (self.key or self.version):
            raise ValueError("key and version belong to mode: upsert")
        return self

    @property
    def upsert(self) -> Upsert | None:
        """How rows replace each other, where the file asks for it."""
        return Upsert(tuple(self.key), self.version or VersionBy.OFFSET) if self.key else None

    @property
    def qualified_table(self) -> tuple[str, str]:
        """Schema and table name; a bare name lives in ``public``."""
        schema, _, table = self.table.rpartition(".")
        return schema or "public", table


class LimitsConfig(_Section):
    """How much one batch takes."""

    max_records: Annotated[int, Field(ge=1)] = 1_000_000
    min_records: Annotated[int, Field(ge=1)] = 1
    max_delay: Duration = 300.0
    target_duration: Annotated[Duration, AfterValidator(_check_target)] | None = None

    @model_validator(mode="after")
    def _minimum_fits(self) -> "LimitsConfig":
        if self.min_records > self.max_records:
            raise ValueError(f"min_records {self.min_records} is larger than max_records {self.max_records}")
        return self

    @property
    def rules(self) -> Limits:
        """What the planning step needs to know of the section."""
        return Limits(self.max_records, self.min_records, self.max_delay, self.target_duration)


class DedupeConfig(_Section):
    """Which records count as the same message, and for how long a message is remembered."""

    key: KeyColumns
    remember: Annotated[Duration, AfterValidator(_check_remember)]
    duplicates: Annotated[DuplicatePolicy, Field(strict=False)] = DuplicatePolicy.DROP


class SequenceConfig(_Section):
    """The producers' own numbering: whose it is, and the column of the numbers."""

    key: KeyColumns
    number: Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_]*$")]
    starts_at: int | None = None
    severity: Annotated[Severity, Field(strict=False)] = Severity.CRITICAL

    @model_validator(mode="after")
    def _number_is_no_key(self) -> "SequenceConfig":
        if self.number in self.key:
            raise ValueError(f"the number {self.number!r} is in the key too; each record would be a series of its own")
        return self


class QuarantineConfig(_Section):
    """How long records that were set aside are kept; without it for good."""

    keep: Annotated[Duration, AfterValidator(_check_keep)]


class AuditConfig(_Section):
    """How many of the newest batches the periodic audit proves; without it the whole history."""

    newest: Annotated[int, Field(ge=1)] | None = None


class DeadlinesConfig(_Section):
    """After how long something becomes an incident; what is not named never does."""

    lag: Deadline | None = None
    freshness: Deadline | None = None
    blocked: Deadline | None = None

    @property
    def rules(self) -> Deadlines:
        """What a look at the pipeline needs to know of the section."""
        return Deadlines(_duration(self.lag), _duration(self.freshness), _duration(self.blocked))


class PipelineConfig(_Section):
    """One pipeline file; its keys are those of the file."""

    name: Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,62}$")]
    schedule: Annotated[str, AfterValidator(_check_cron)] | None = None
    source: SourceConfig
    transform: Annotated[str, Field(pattern=r"^[A-Za-z_][\w.]*:[A-Za-z_]\w*$")] | None = None
    sink: SinkConfig
    delivery: Annotated[DeliveryMode, Field(strict=False)] = DeliveryMode.EXACTLY_ONCE
    limits: LimitsConfig = LimitsConfig()
    dedupe: DedupeConfig | None = None
    sequence: SequenceConfig | None = None
    checks: Annotated[list[CheckEntry], BeforeValidator(expand_suites)] = []
    on_check_failure: Annotated[OnFailure, Field(strict=False)] = OnFailure.BLOCK
    quarantine: QuarantineConfig | None = None
    audit: AuditConfig = AuditConfig()
    alerts: Annotated[list[ConnectionId], AfterValidator(_check_alerts)] = []
    deadlines: DeadlinesConfig = DeadlinesConfig()
    spark: ConnectionId = "spark_default"
    _folder: Path = PrivateAttr(default=Path())

    def model_post_init(self, context: Any, /) -> None:
        """Remember where the file lies: modules and suites of checks lie beside it."""
        self._folder = (context or {}).get("folder", self._folder)

    @model_validator(mode="after")
    def _key_columns_exist(self) -> "PipelineConfig":
        """A transform may add columns; what its rows have is seen when they are staged."""
        if self.transform is None:
            _require_declared("dedupe.key", self.dedupe.key if self.dedupe else [], self.source.columns)
            _require_declared("sink.key", self.sink.key or [], self.source.columns)
            if self.sequence is not None:
                _require_declared("sequence.key", self.sequence.key, self.source.columns)
                _require_integer("sequence.number", self.sequence.number, self.source.columns)
        return self

    @model_validator(mode="after")
    def _tombstones_fit(self) -> "PipelineConfig":
        key, tombstones = self.sink.key or [], self.source.tombstones
        if tombstones is TombstonePolicy.KEEP and self.transform is None and self.sink.mode is SinkMode.UPSERT:
            raise ValueError(
                "source.tombstones: keep makes rows without a key, which sink.mode upsert refuses; allowed: "
                "quarantine, skip, delete, or a transform that gives them one"
            )
        if tombstones is TombstonePolicy.DELETE:
            if self.sink.mode is not SinkMode.UPSERT:
                raise ValueError("source.tombstones: delete needs sink.mode: upsert, which knows the rows by a key")
            _require_declared("sink.key", key, self.source.columns)
            if self.dedupe is not None and set(self.dedupe.key) <= set(key):
                raise ValueError(
                    "dedupe.key: a tombstone would pass for a duplicate of the record that it deletes; name a column "
                    "that is not in sink.key"
                )
        return self

    @model_validator(mode="after")
    def _checks_fit(self) -> "PipelineConfig":
        for entry, check in zip(self.checks, self.requested_checks, strict=True):
            if check.on_failure is OnFailure.QUARANTINE and entry.is_row_level is False:
                raise ValueError(
                    f"checks: {check.name} names no failing rows, so that none can be set aside; allowed: on_failure: "
                    "block or publish"
                )
            if self.transform is None:
                _require_declared(
                    f"checks: {check.name}",
                    [each for each in entry.columns if not each.startswith("_")],
                    self.source.columns,
                )
        return self

    @property
    def requested_checks(self) -> tuple[RequestedCheck, ...]:
        """What the file asks to be judged on the rows of every batch."""
        return name_checks(self.checks, self.on_check_failure)

    @property
    def folder(self) -> Path:
        """Where the file lies."""
        return self._folder

    @property
    def deduplication(self) -> Deduplication | None:
        """The idempotent consumer, where the file asks for it."""
        if self.dedupe is None:
            return None
        remember = timedelta(seconds=self.dedupe.remember)
        return Deduplication(tuple(self.dedupe.key), remember, self.dedupe.duplicates)

    @property
    def numbering(self) -> SequenceRule | None:
        """The producers' own numbering, where the file tells of it."""
        if self.sequence is None:
            return None
        return SequenceRule(
            tuple(self.sequence.key), self.sequence.number, self.sequence.starts_at, self.sequence.severity
        )

    @property
    def rules(self) -> PipelineRules:
        """What the steps need to know of the file."""
        start = self.source.start
        return PipelineRules(
            name=self.name,
            topics=tuple(self.source.topics),
            limits=self.limits.rules,
            start=StartPolicy(start) if isinstance(start, str) else StartPolicy.TIMESTAMP,
            start_at=start if isinstance(start, datetime) else None,
            holes=self.source.holes,
            has_transform=self.transform is not None,
            delivery=self.delivery,
            deduplication=self.deduplication,
            sequence=self.numbering,
        )


class _UniqueKeyLoader(yaml.SafeLoader):
    """Refuses a key that appears twice, which YAML forbids: else the last one would silently win (S28)."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """See the base class. Raises yaml.YAMLError."""
        seen = []
        for key_node, _ in node.value:
            key = self.construct_object(key_node)
            if key in seen:
                raise yaml.constructor.ConstructorError(None, None, f"key {key!r} appears twice", key_node.start_mark)
            seen.append(key)
        return super().construct_mapping(node, deep)


def pipelines_folder() -> Path:
    """The folder that holds the pipeline files."""
    return Path(os.environ.get(PIPELINES_VARIABLE) or DEFAULT_PIPELINES_FOLDER)


def find_pipeline_files() -> list[Path]:
    """Return the pipeline files, sorted by name."""
    return sorted(path for path in pipelines_folder().glob("*.yaml"))


def load_pipeline(name: str) -> PipelineConfig:
    """Return the pipeline of that name. Raises ConfigurationError with the nearest name when there is none."""
    files = find_pipeline_files()
    for path in files:
        if path.stem == name:
            return read_pipeline_file(path)
    names = [path.stem for path in files]
    raise ConfigurationError(
        f"there is no pipeline {name!r} in {pipelines_folder()}; {_nearest(name, names)}", pipeline=name
    )


def read_pipeline_file(path: Path) -> PipelineConfig:
    """Read and validate one file. Raises ConfigurationError that lists every fault with file, key and value."""
    try:
        content = yaml.load(path.read_text(encoding="utf-8"), _UniqueKeyLoader)  # noqa: S506 -- a SafeLoader
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigurationError(f"{path}: not readable as YAML: {error}", file=str(path)) from error
    if not isinstance(content, dict):
        raise ConfigurationError(f"{path}: not a pipeline: it has no keys; name, source and sink are required.")
    try:
        pipeline = PipelineConfig.model_validate(content, context={"folder": path.parent})
    except ValidationError as error:
        faults = [_explain(fault) for fault in error.errors(include_url=False)]
        raise ConfigurationError("\n".join(f"{path}: {fault}" for fault in faults), file=str(path)) from None
    if pipeline.name != path.stem:
        raise ConfigurationError(
            f"{path}: name: {pipeline.name!r} differs from the file name; call the file {pipeline.name}.yaml.",
            file=str(path),
        )
    return pipeline


def _explain(fault: Any) -> str:
    place = [str(part) for part in fault["loc"]]
    key = ".".join(place) or "file"
    match fault["type"]:
        case "extra_forbidden":
            allowed = _keys_of(place[:-1])
            return f"{key}: unknown key {place[-1]!r}; {_nearest(place[-1], allowed)}"
        case "missing":
            return f"{key}: this key is required"
        case "literal_error" | "enum":
            return f"{key}: {fault['input']!r} is not allowed; allowed: {fault['ctx']['expected']}"
        case "string_pattern_mismatch":
            return f"{key}: {fault['input']!r} does not match {fault['ctx']['pattern']}"
        case "value_error":
            # A rule between sections names its keys itself.
            return f"{key}: {fault['input']!r}: {fault['ctx']['error']}" if place else str(fault["ctx"]["error"])
        case _:
            return f"{key}: {fault['input']!r}: {fault['msg']}"


def _keys_of(place: list[str]) -> list[str]:
    model: type[BaseModel] = PipelineConfig
    for part in place:
        annotation = model.model_fields[part].annotation
        # A section that may be missing is a union with None.
        sections = [each for each in (annotation, *get_args(annotation)) if isinstance(each, type)]
        model = next((each for each in sections if issubclass(each, BaseModel)), _Section)
    return [field.alias or name for name, field in model.model_fields.items()]


def _nearest(name: str, allowed: list[str]) -> str:
    close = difflib.get_close_matches(name, allowed, n=1)
    return f"did you mean {close[0]!r}?" if close else f"allowed: {', '.join(allowed) or 'none'}"


def _duration(seconds: float | None) -> timedelta | None:
    return None if seconds is None else timedelta(seconds=seconds)


def _require_declared(key: str, names: list[str], columns: tuple[Column, ...]) -> None:
    declared = [column.name for column in columns]
    for name in names:
        if name not in declared:
            raise ValueError(f"{key}: {name!r} is not a column of source.schema; {_nearest(name, declared)}")


def _require_integer(key: str, name: str, columns: tuple[Column, ...]) -> None:
    _require_declared(key, [name], columns)
    type_ = next(each.type for each in columns if each.name == name)
    if type_ not in INTEGER_TYPES:
        raise ValueError(f"{key}: {name!r} is a {type_} in source.schema; numbers are {', '.join(INTEGER_TYPES)}")
