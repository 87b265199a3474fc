"""The sections of a pipeline file: which keys they have, and what each value may be. Pure; opens and reads nothing."""

import json
import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema, model_validator

from batchledger.lifecycle.platform import Deadlines
from batchledger.model.balance import HolePolicy
from batchledger.model.checks import Severity
from batchledger.model.offsets import LARGEST_OFFSET
from batchledger.model.quoting import quote
from batchledger.model.records.columns import DELETED_COLUMN, PROVENANCE_COLUMNS, REST, Column, parse_columns
from batchledger.model.records.outer import KeyFormat, OuterColumns, parse_headers, parse_key
from batchledger.model.records.protection import ColumnProtection, check_protections, without_dropped
from batchledger.model.records.quarantine import QuarantineLimit
from batchledger.model.records.rules import (
    DuplicatePolicy,
    TombstonePolicy,
    UnknownFieldPolicy,
)
from batchledger.model.records.writer_schemas import Framing, SchemaType, SubjectVersion
from batchledger.model.requests import TwoPersonOrder
from batchledger.planning.live import Limits, StartPolicy
from batchledger.settings.kafka_options import CONSUMER_OPTIONS, explain_refusal
from batchledger.settings.values import (
    ColumnName,
    ConnectionId,
    Count,
    Duration,
    KeyColumns,
    Section,
    Topic,
    lasting,
    unrepeated,
)

_WHOLE = re.compile(r"\d{1,19}", re.ASCII)
_LONGEST_FETCH_MS = 5_000


def _check_headers(value: dict[str, str]) -> dict[str, str]:
    parse_headers(value)
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
        if reason is None and option != "client.rack" and not _WHOLE.fullmatch(str(setting)):
            reason = f"{option} must be a whole number, found {quote(setting)}"
        if reason is None and option == "fetch.max.wait.ms" and int(setting) > _LONGEST_FETCH_MS:
            reason = f"{option} must be at most {_LONGEST_FETCH_MS}, so that a broker that is away is noticed"
        if reason is not None:
            raise ValueError(reason)
    return {str(option): str(setting) for option, setting in value.items()}


def _check_reader_schema(value: object) -> object:
    if value == "latest":
        raise ValueError(
            "latest would give a replay other rows when a newer version is registered; write the number of a version"
        )
    return value


_WrittenStart = Literal["earliest", "latest"] | Annotated[str, Field(pattern=r"^\d{4}")] | int
_WRITTEN_OPTIONS = {
    "type": "object",
    "properties": {each: {"type": ["string", "integer"]} for each in CONSUMER_OPTIONS},
    "additionalProperties": False,
}
Deadline = Annotated[Duration, lasting(1, "write a duration from 1s to 36500d")]
Channels = Annotated[list[ConnectionId], unrepeated("connection")]
SecondPerson = Annotated[list[Annotated[TwoPersonOrder, Field(strict=False)]], unrepeated("order")]


class KeyConfig(Section):
    """Columns that come from the key."""

    format: Annotated[KeyFormat, Field(strict=False)]
    """What the bytes of a key are."""
    columns: str
    """The columns of a row that come from the key: `"name type, name type"`."""

    @model_validator(mode="after")
    def _columns_fit(self) -> "KeyConfig":
        parse_key(self.format, self.columns)
        return self


_ROW_RULES = {
    *("format", "framing", "schema_file", "message", "reader_schema", "record_schema", "key", "headers"),
    *("tombstones", "unknown_fields", "protect"),
}


class SourceConfig(Section):
    """What is read: topics of one Kafka connection, and how a record is decoded."""

    connection: ConnectionId = "kafka_default"
    """An Airflow connection of type `kafka`."""
    topics: Annotated[list[Topic], Field(min_length=1), unrepeated("topic")]
    """One or more; all have the same schema."""
    format: Literal["json", "avro", "protobuf"] = "json"
    """How values are written."""
    registry: ConnectionId | None = None
    """The connection of the schema registry, for Avro and Protobuf."""
    framing: Annotated[Framing, Field(strict=False)] = Framing.CONFLUENT
    """How a record names its schema."""
    schema_file: str | None = None
    """With `framing: none`: the file of the schema of all values, in the folder of the pipeline file."""
    message: str | None = None
    """With `format: protobuf` and `framing: header` or `none`: the full name of the message of values whose header
    names none; without it, the first one.
    """
    reader_schema: Annotated[Annotated[int, Field(ge=1)] | None, BeforeValidator(_check_reader_schema)] = None
    """With `format: avro`: the number of a version of the subject `<topic>-value`. Its defaults and aliases stand for
    fields that a writer's schema lacks. It does not go with `unknown_fields: keep`.
    """
    record_schema: Annotated[str, Field(alias="schema"), AfterValidator(_check_columns)]
    """The columns: `"name type, name type"`. Types are string, boolean, tinyint, smallint, int, bigint, float, double,
    decimal(p,s), date, timestamp, timestamp_s, timestamp_ms, timestamp_us, binary, uuid, jsonb, array<…>, map<…>,
    struct<…>.
    """
    key: KeyConfig | None = None
    headers: Annotated[dict[str, str], AfterValidator(_check_headers)] = Field(default_factory=dict)
    """Columns that come from headers: `tenant: "header tenant string"`."""
    start: Annotated[
        Literal["earliest", "latest"] | datetime, BeforeValidator(_check_start, json_schema_input_type=_WrittenStart)
    ] = "earliest"
    """Where a new topic begins: `earliest`, `latest`, or a timestamp."""
    isolation: Literal["read_committed"] = "read_committed"
    """Only `read_committed`."""
    holes: Annotated[HolePolicy, Field(strict=False)] = HolePolicy.NONE
    """How offsets without a record are explained."""
    tombstones: Annotated[TombstonePolicy, Field(strict=False)] = TombstonePolicy.QUARANTINE
    """What becomes of records without a value."""
    unknown_fields: Annotated[UnknownFieldPolicy, Field(strict=False)] = UnknownFieldPolicy.WARN
    """What becomes of fields that are not declared."""
    protect: dict[str, Annotated[ColumnProtection, Field(strict=False)]] = Field(default_factory=dict)
    """Columns that are hashed, masked or dropped before anything is written: `{email: hash, card: mask, note: drop}`.
    With it, quarantine keeps no payloads.
    """
    options: Annotated[dict[str, str], BeforeValidator(_check_options), WithJsonSchema(_WRITTEN_OPTIONS)] = Field(
        default_factory=dict
    )
    """Tuning of the Kafka consumers in Spark's tasks; `fetch.max.wait.ms` is at most 5000. If neither it nor
    `fetch.min.bytes` is set, it is 20. With tiered storage and brokers before 3.8, it also bounds the reads from the
    remote store: set 500. Any other option is refused, with a reason if it would break the promise.
    """

    def write_row_rules(self, transform: str | None) -> str:
        """Return a text that two files share if they make the same rows of the same records, so far as files say."""
        rules = self.model_dump(mode="json", include=_ROW_RULES) | {"transform": transform}
        return json.dumps(rules, sort_keys=True)

    @model_validator(mode="after")
    def _names_differ(self) -> "SourceConfig":
        names = [each.name.lower() for each in (*self.value_columns, *self.outer.columns)]
        twice = sorted({each for each in names if names.count(each) > 1})
        if twice:
            raise ValueError(f"column {twice[0]!r} is in two of schema, key and headers")
        return self

    @model_validator(mode="after")
    def _columns_can_be_protected(self) -> "SourceConfig":
        outer = self.outer
        key = outer.key.columns if outer.key else ()
        headers = tuple(replace(each.column, path=(each.header,)) for each in outer.headers)
        check_protections(self.protect, (self.value_columns, key, headers))
        return self

    @model_validator(mode="after")
    def _schemas_are_found(self) -> "SourceConfig":
        key_type = self.key.format.schema_type if self.key else None
        if key_type is not None and self.framing is Framing.NONE:
            raise ValueError(f"key.format: {key_type.lower()}: a key names its schema, so framing: none cannot be")
        if self.schema_type is None and key_type is not None and self.registry is not None:
            return self
        if self.schema_type is None:
            keys = ("registry", "framing", "schema_file", "message", "reader_schema")
            given = [each for each in keys if each in self.model_fields_set]
            if given:
                raise ValueError(
                    f"{given[0]} is for format: avro and format: protobuf; JSON needs no schema of its writer"
                )
            return self
        if self.message is not None and (
            self.schema_type is not SchemaType.PROTOBUF or self.framing is Framing.CONFLUENT
        ):
            raise ValueError(
                "message is for format: protobuf with framing: header or none; another one names its message"
            )
        if self.framing is Framing.NONE:
            if self.schema_file is None or self.registry is not None:
                raise ValueError("framing: none: records name no schema; write schema_file, and no registry")
        elif self.registry is None:
            raise ValueError(
                f"format: {self.format} needs registry, the connection of the schema registry; or, if records name no "
                "schema, framing: none and schema_file"
            )
        elif self.schema_file is not None:
            raise ValueError("schema_file is for framing: none; records of other framings name their schema")
        return self

    @model_validator(mode="after")
    def _reader_schema_is_one(self) -> "SourceConfig":
        if self.reader_schema is None:
            return self
        if self.schema_type is not SchemaType.AVRO:
            raise ValueError(
                "reader_schema is for format: avro; schemas of Protobuf have no aliases, nor such defaults"
            )
        if self.framing is Framing.NONE:
            raise ValueError("reader_schema is a version in a registry, and framing: none has no registry")
        if self.unknown_fields is UnknownFieldPolicy.KEEP:
            raise ValueError(
                "reader_schema does not go with unknown_fields: keep: a field that an alias leads to has two names"
            )
        if len(self.topics) > 1:
            raise ValueError("reader_schema is a version of one topic's subject; write a pipeline for each topic")
        return self

    @property
    def reader(self) -> SubjectVersion | None:
        """The schema that aliases and defaults come from, under the usual name of the topic's subject."""
        return None if self.reader_schema is None else SubjectVersion(f"{self.topics[0]}-value", self.reader_schema)

    @property
    def schema_type(self) -> SchemaType | None:
        """The language of the schemas that values were written with; None for JSON, which is read without one."""
        return {"avro": SchemaType.AVRO, "protobuf": SchemaType.PROTOBUF}.get(self.format)

    @property
    def aliases(self) -> list[str]:
        """Each topic as an asset of Airflow, by the file alone: a pipeline into this topic has the same."""
        return [f"{self.connection}/{topic}" for topic in self.topics]

    @property
    def columns(self) -> tuple[Column, ...]:
        """The columns of a row: of the value, then of key and headers, then of the fields that are kept."""
        kept = (REST,) if self.unknown_fields is UnknownFieldPolicy.KEEP else ()
        return without_dropped((*self.value_columns, *self.outer.columns, *kept), self.protect)

    @property
    def row_columns(self) -> list[str]:
        """The names of all columns that a row has before a transform."""
        deleted = [DELETED_COLUMN] if self.tombstones is TombstonePolicy.DELETE else []
        return [*(each.name for each in self.columns), *PROVENANCE_COLUMNS, *deleted]

    @property
    def value_columns(self) -> tuple[Column, ...]:
        """The columns that come from the value."""
        return parse_columns(self.record_schema)

    @property
    def outer(self) -> OuterColumns:
        """The columns that come from key and headers."""
        key = parse_key(self.key.format, self.key.columns) if self.key else None
        return OuterColumns(key, parse_headers(self.headers))


class LimitsConfig(Section):
    """How much one batch takes."""

    max_records: Count = 1_000_000
    """The most offsets of one batch, shared fairly among the partitions."""
    min_records: Count = 1
    """Fewer wait, until `max_delay` has passed since the last publication. A run that a person triggers in Airflow
    takes them.
    """
    max_delay: Duration = 300.0
    """How long fewer records than `min_records` may wait: `30s`, `5m`, `2h`, `7d`."""
    target_duration: Annotated[Duration, lasting(1, "write how long a batch should take: 1s or more")] | None = None
    """How long a batch should take, `1s` or more: the size of each batch follows what the newest ones took, within
    `max_records`.
    """

    @model_validator(mode="after")
    def _minimum_fits(self) -> "LimitsConfig":
        if self.min_records > self.max_records:
            raise ValueError(f"min_records {self.min_records} is larger than max_records {self.max_records}")
        return self

    @property
    def rules(self) -> Limits:
        """What the planning step needs to know of the section."""
        return Limits(self.max_records, self.min_records, self.max_delay, self.target_duration)


class DedupeConfig(Section):
    """Which records count as the same message, and for how long a message is remembered."""

    key: KeyColumns
    """The columns that identify a message."""
    remember: Annotated[Duration, lasting(1, "write how long a key is remembered, from 1s to 36500d")]
    """How long a key is remembered."""
    duplicates: Annotated[DuplicatePolicy, Field(strict=False)] = DuplicatePolicy.DROP
    """`drop`, or `block`, which lets duplicates block the batch."""


class SequenceConfig(Section):
    """The producers' own numbering: whose it is, and the column of the numbers."""

    key: KeyColumns
    """The columns that identify a series: a device, a session."""
    number: ColumnName
    """The column of the numbers."""
    starts_at: Annotated[int, Field(ge=-LARGEST_OFFSET - 1, le=LARGEST_OFFSET)] | None = None
    """The number with which a numbering begins."""
    severity: Annotated[Severity, Field(strict=False)] = Severity.CRITICAL
    """How much a missing number matters."""

    @model_validator(mode="after")
    def _number_is_no_key(self) -> "SequenceConfig":
        if self.number in self.key:
            raise ValueError(f"the number {self.number!r} is in the key too; each record would be a series of its own")
        return self


class QuarantineConfig(Section):
    """How long records that were set aside are kept, without it for good; and how much of a batch may be set aside."""

    keep: Annotated[Duration, lasting(3600, "write how long a record is kept in quarantine: 1h or more")] | None = None
    """`90d`, `1h` or more: housekeeping removes records that were set aside longer ago; without it they stay."""
    max_share: Annotated[float, Field(ge=0, le=1)] | None = None
    """From `0` to `1`: a batch is blocked if a larger share would be quarantined. Without it `0.5`, of 20 records and
    more.
    """

    @property
    def limit(self) -> QuarantineLimit:
        """What an audit needs to know of the section: a share that is named counts from the first record on."""
        return QuarantineLimit() if self.max_share is None else QuarantineLimit(self.max_share, min_records=1)


class HistoryConfig(Section):
    """How long the ledger keeps each batch; older ones are joined. Without it, for good."""

    keep: Annotated[Duration, lasting(86_400, "write how long each batch is kept: 1d or more")] | None = None
    """`90d`, `1d` or more: housekeeping joins batches that were published on an earlier day; without it each stays. For
    a PostgreSQL table with `mode: append`.
    """


class AuditConfig(Section):
    """How many of the newest batches the periodic audit proves; without it the whole history."""

    newest: Count | None = None
    """The periodic audit proves what so many of the newest batches have published; without it the whole history."""


class DeadlinesConfig(Section):
    """After how long something becomes an incident; what is not named never does."""

    lag: Deadline | None = None
    """The age of the oldest unread record, by its own timestamp, that opens an incident."""
    freshness: Deadline | None = None
    """How long nothing may be published, while records wait or the topic is idle."""
    blocked: Deadline | None = None
    """How long a blocked batch may wait for a person."""

    @property
    def rules(self) -> Deadlines:
        """What a look at the pipeline needs to know of the section."""
        return Deadlines(_duration(self.lag), _duration(self.freshness), _duration(self.blocked))


def _duration(seconds: float | None) -> timedelta | None:
    return None if seconds is None else timedelta(seconds=seconds)
