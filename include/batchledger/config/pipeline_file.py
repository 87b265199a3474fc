"""Pipeline files into frozen configuration, completely validated before any connection is opened.

This module alone reads the environment: ``BATCHLEDGER_PIPELINES`` names the folder of pipeline files. A message names
file, key, value and the allowed or nearest name. It imports no Spark, Kafka or Great Expectations, because Airflow
parses DAG files through it.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, PrivateAttr, ValidationError, model_validator
from typing_extensions import override

from batchledger.config.check_entries import ENTRY_BY_CHECK, CheckEntry, SuiteEntry, expand_suites, name_checks
from batchledger.config.dags import DagConfig
from batchledger.config.documents import LARGEST_BYTES
from batchledger.config.extras import find_extras, require_extra
from batchledger.config.faults import list_faults
from batchledger.config.places import PIPELINES_VARIABLE, default_pipelines_folder, pipelines_folder
from batchledger.config.refusals import read_keys, refuse, require_file_name, write_path
from batchledger.config.schedules import SCHEDULES_WITHOUT_INTERVAL, StartOnRecordsConfig, check_cron
from batchledger.config.sections import (
    AuditConfig,
    Channels,
    DeadlinesConfig,
    DedupeConfig,
    HistoryConfig,
    LimitsConfig,
    QuarantineConfig,
    SecondPerson,
    SequenceConfig,
    SourceConfig,
)
from batchledger.config.transforms import TransformEntry, find_transform
from batchledger.lifecycle.platform import PipelineRules
from batchledger.model.batch import DeliveryMode
from batchledger.model.checks import OnFailure, RequestedCheck
from batchledger.model.errors import UnknownPipelineError
from batchledger.model.records.contract import fingerprint
from batchledger.model.records.identifiers import explain_columns
from batchledger.model.records.quarantine import QuarantineLimit
from batchledger.model.records.rules import Deduplication, SequenceRule, TombstonePolicy, UnknownFieldPolicy
from batchledger.model.records.transforms import Transform
from batchledger.planning.live import StartPolicy
from batchledger.settings.column_rules import (
    nearest,
    require_declared,
    require_integer,
    require_not_dropped,
    require_scalar,
    require_telling,
)
from batchledger.settings.values import ConnectionId, NamedConnection, Section
from batchledger.sinks.kinds import SinkConfig

DEFAULT_PIPELINES_FOLDER = default_pipelines_folder()
EXPECTED = ".expect.yaml"
"""The end of the name of a file beside a pipeline file: what the pipeline is expected to make of records."""
_ALL_KEYS = "The documentation lists every key: reference/pipeline-file"

_WATCH = re.compile(rb"^watch[ \t]*:", re.MULTILINE)

_NAME = r"[a-z][a-z0-9_]{0,62}"


def check_name(name: str) -> str:
    """Return the name if a pipeline can have it. Raises ValueError in words."""
    if re.fullmatch(_NAME, name, re.ASCII) is None:
        raise ValueError("write a small letter, then small letters, digits and _, 63 at most")
    return name


class PipelineConfig(Section):
    """One pipeline file. Its fields are the keys of the file."""

    name: Annotated[str, AfterValidator(check_name), Field(json_schema_extra={"pattern": f"^{_NAME}$"})]
    """Also the DAG id, and the name of the file: `[a-z][a-z0-9_]*`, at most 63 characters."""
    schedule: Annotated[str, AfterValidator(check_cron)] | None = None
    """A cron expression, or `@daily` and the like."""
    start_on_records: StartOnRecordsConfig | None = None
    source: SourceConfig
    transform: TransformEntry = None
    """`{sql: "select … from rows where …"}`, row by row; or `module:function`, DataFrame to DataFrame. The module lies
    beside the file, or is installed.
    """
    sink: SinkConfig
    """Where rows go. `type` says what it is; without it, a PostgreSQL table."""
    delivery: Annotated[DeliveryMode, Field(strict=False)] = DeliveryMode.EXACTLY_ONCE
    """What a crash while publishing may do to a batch: nothing, repeat its rows, or lose them."""
    limits: LimitsConfig = LimitsConfig()
    dedupe: DedupeConfig | None = None
    sequence: SequenceConfig | None = None
    checks: Annotated[
        list[CheckEntry], BeforeValidator(expand_suites, json_schema_input_type=list[CheckEntry | SuiteEntry])
    ] = Field(default_factory=list)
    """What else judges every batch: expectations of Great Expectations, and of your own."""
    on_check_failure: Annotated[OnFailure, Field(strict=False)] = OnFailure.BLOCK
    """What a failed critical check does."""
    quarantine: QuarantineConfig | None = None
    history: HistoryConfig = HistoryConfig()
    audit: AuditConfig = AuditConfig()
    alerts: Channels = Field(default_factory=list)
    """Ids of Airflow connections of type `apprise`, `smtp` or `http`."""
    deadlines: DeadlinesConfig = DeadlinesConfig()
    second_person: SecondPerson = Field(default_factory=list)
    """Orders that a second person has to confirm."""
    spark: ConnectionId = "spark_default"
    """An Airflow connection of type `spark-connect` or `spark`. Pipelines that name the same one are a trust domain."""
    ledger: ConnectionId | None = None
    """With `kafka` and `iceberg`: the connection of the database that holds the ledger; `warehouse` if it is not set. A
    PostgreSQL sink has its ledger in its own database.
    """
    dag: DagConfig = DagConfig()
    _folder: Path = PrivateAttr(default_factory=pipelines_folder)
    _row_transform: Transform | None = PrivateAttr(default=None)

    @override
    def model_post_init(self, context: Any, /) -> None:
        """Remember where the file lies: modules and suites of checks lie beside it."""
        self._folder = (context or {}).get("folder", self._folder)

    @model_validator(mode="after")
    def _starts_fit(self) -> "PipelineConfig":
        if self.start_on_records is not None and self.schedule in SCHEDULES_WITHOUT_INTERVAL:
            raise ValueError(
                f"schedule: {self.schedule} does not go with start_on_records; write a cron expression, or leave it out"
            )
        return self

    @model_validator(mode="after")
    def _dag_is_asked_for_nothing_without_one(self) -> "PipelineConfig":
        if self.dag.tasks == "none":
            given = ["schedule"] if "schedule" in self.model_fields_set else []
            given += ["start_on_records"] if self.start_on_records is not None else []
            given += [f"dag.{each}" for each in sorted(self.dag.model_fields_set - {"tasks"})]
            if given:
                raise ValueError(f"dag.tasks: none leaves nothing that {', '.join(given)} could be for")
        return self

    @model_validator(mode="after")
    def _columns_can_be_stored(self) -> "PipelineConfig":
        """Without a transform only: the stage step sees which columns a transform makes."""
        if self.transform is None:
            fault = explain_columns(self.source.row_columns)
            if fault is not None:
                raise ValueError(f"source.schema: {fault}")
        return self

    @model_validator(mode="after")
    def _transform_is_found(self) -> "PipelineConfig":
        """SQL, and the text of a module beside the file, are read once: what the rules say is what runs."""
        self._row_transform = find_transform(self.transform, self._folder, self.source.row_columns)
        return self

    @model_validator(mode="after")
    def _key_columns_exist(self) -> "PipelineConfig":
        """Without a transform only: it may add columns, which the stage step sees. A mask is refused with one, too."""
        for key, names in self.keys.items():
            require_telling(key, names, self.source.protect)
        if self.transform is None:
            for key, names in self.keys.items():
                require_not_dropped(key, names, self.source.protect)
                require_scalar(key, names, self.source.columns)
            if self.sequence is not None:
                require_not_dropped("sequence.number", [self.sequence.number], self.source.protect)
                require_integer("sequence.number", self.sequence.number, self.source.columns)
        return self

    @model_validator(mode="after")
    def _tombstones_fit(self) -> "PipelineConfig":
        key, tombstones = self.sink.key_columns, self.source.tombstones
        if tombstones is TombstonePolicy.KEEP and self.transform is None and key:
            raise ValueError(
                "source.tombstones: keep makes rows without a key, which the sink refuses; allowed: quarantine, skip, "
                "delete, or a transform that adds a key"
            )
        if tombstones is TombstonePolicy.DELETE:
            if not key:
                raise ValueError(
                    "source.tombstones: delete needs a sink that knows the rows by a key: sink.mode: upsert, or a "
                    "topic with sink.key"
                )
            require_not_dropped("sink.key", key, self.source.protect)
            require_scalar("sink.key", key, self.source.columns)
            outer = {each.name for each in self.source.outer.columns}
            if set(key) & outer and not set(key) <= outer:
                raise ValueError(
                    "sink.key: with source.tombstones: delete, name columns of source.key and source.headers alone, or "
                    "columns of source.schema alone"
                )
            if self.dedupe is not None and set(self.dedupe.key) <= set(key):
                raise ValueError(
                    "dedupe.key: a tombstone would count as a duplicate of the record that it deletes; name a column "
                    "that is not in sink.key"
                )
        return self

    @model_validator(mode="after")
    def _sink_fits(self) -> "PipelineConfig":
        if self.history.keep is not None and not self.sink.proves_joined_batches:
            raise ValueError(
                "history.keep: of this sink, joined batches would prove less than each of them does; allowed for a "
                "PostgreSQL table with sink.mode: append"
            )
        connection = self.sink.ledger_connection
        if connection is not None and self.ledger not in (None, connection):
            raise ValueError(f"ledger: {self.ledger!r}: the ledger is where the table is, in {connection!r}")
        columns = None if self.transform else self.source.columns
        self.sink.require_fit(self.source.aliases, columns, self.delivery)
        if self.source.unknown_fields is UnknownFieldPolicy.ADD and not self.sink.takes_new_columns:
            raise ValueError("source.unknown_fields: add needs a table that gets columns; write sink.evolve: add")
        return self

    @model_validator(mode="after")
    def _checks_fit(self) -> "PipelineConfig":
        for entry, check in zip(self.checks, self.requested_checks, strict=True):
            if check.on_failure is OnFailure.QUARANTINE and entry.is_row_level is False:
                raise ValueError(
                    f"checks: {check.name} names no failing rows, so none can be set aside; allowed: on_failure: "
                    "block or publish"
                )
            if self.transform is None:
                require_declared(
                    f"checks: {check.name}",
                    [each for each in entry.columns if not each.startswith("_")],
                    self.source.columns,
                )
        return self

    @property
    def keys(self) -> Mapping[str, Sequence[str]]:
        """The columns that tell rows, messages and series apart, by the key of the file that names them."""
        return {
            "dedupe.key": self.dedupe.key if self.dedupe else [],
            "sink.key": self.sink.key_columns,
            "sequence.key": self.sequence.key if self.sequence else [],
        }

    @property
    def requested_checks(self) -> tuple[RequestedCheck, ...]:
        """The checks that the file asks for, on the rows of every batch."""
        return name_checks(self.checks, self.on_check_failure)

    @property
    def warehouse(self) -> str:
        """The connection of the ledger's database: the sink's own if the sink is a PostgreSQL table."""
        return self.sink.ledger_connection or self.ledger or "warehouse"

    @property
    def data_connections(self) -> tuple[NamedConnection, ...]:
        """The connections of the registry that it reads by, and of the sink, without the ledger's."""
        read_by = self.source.registry
        registry = [] if read_by is None else [NamedConnection("source.registry", read_by, ("http",))]
        return (*registry, *self.sink.list_connections())

    @property
    def row_transform(self) -> Transform | None:
        """What changes the rows."""
        return self._row_transform

    @property
    def folder(self) -> Path:
        """The folder of the file."""
        return self._folder

    @property
    def file(self) -> Path:
        """The file itself. It has the pipeline's name."""
        return self._folder / f"{self.name}.yaml"

    @property
    def deduplication(self) -> Deduplication | None:
        """The idempotent consumer, if the file asks for it."""
        if self.dedupe is None:
            return None
        remember = timedelta(seconds=self.dedupe.remember)
        return Deduplication(tuple(self.dedupe.key), remember, self.dedupe.duplicates)

    @property
    def numbering(self) -> SequenceRule | None:
        """The producers' own numbering, if the file declares it."""
        if self.sequence is None:
            return None
        return SequenceRule(
            tuple(self.sequence.key), self.sequence.number, self.sequence.starts_at, self.sequence.severity
        )

    @property
    def rules(self) -> PipelineRules:
        """The part of the file that the steps need."""
        start = self.source.start
        return PipelineRules(
            name=self.name,
            topics=tuple(self.source.topics),
            limits=self.limits.rules,
            start=StartPolicy(start) if isinstance(start, str) else StartPolicy.TIMESTAMP,
            start_at=start if isinstance(start, datetime) else None,
            holes=self.source.holes,
            has_transform=self.transform is not None,
            has_checks=bool(self.checks),
            delivery=self.delivery,
            deduplication=self.deduplication,
            sequence=self.numbering,
            mode=self.sink.sink_mode,
            quarantine_limit=self.quarantine.limit if self.quarantine else QuarantineLimit(),
            unknown_fields=self.source.unknown_fields,
            is_json=self.source.schema_type is None,
            second_person=tuple(self.second_person),
            row_rules=fingerprint(
                self.source.write_row_rules(self._row_transform.rule if self._row_transform else None)
            ),
        )


def find_pipeline_files(folder: Path | None = None) -> list[Path]:
    """Return the pipeline files of a folder, else of the one that holds them here, sorted by name."""
    return [each for each in find_files(folder) if not is_watch_file(each)]


def find_watch_files(folder: Path | None = None) -> list[Path]:
    """Return the files of watches, which lie beside the pipeline files, sorted by name."""
    return [each for each in find_files(folder) if is_watch_file(each)]


def find_files(folder: Path | None = None) -> list[Path]:
    """Return the files of pipelines and watches, sorted by name. Reads none."""
    found = (folder or pipelines_folder()).glob("*.yaml")
    return sorted(each for each in found if not each.name.endswith(EXPECTED))


def is_watch(name: str) -> bool:
    """Whether the file of this name is a watch's. Reads that one alone."""
    return any(is_watch_file(each) for each in find_files() if each.stem == name)


def is_watch_file(path: Path) -> bool:
    """Whether the file has the key ``watch``. What cannot be read is a pipeline's file, and is refused as one."""
    try:
        with path.open("rb") as stream:
            return _WATCH.search(stream.read(LARGEST_BYTES)) is not None
    except OSError:
        return False


def name_in_airflow(path: Path) -> str:
    """Return the name of a pipeline file as an id that Airflow takes. A valid file keeps its name.

    Only a file that is refused can have other characters: ``my orders.yaml`` becomes ``my_orders``.
    """
    return re.sub(r"[^A-Za-z0-9_.-]", "_", path.stem)


def load_pipeline(name: str) -> PipelineConfig:
    """Return the pipeline of that name. Raises UnknownPipelineError with the nearest name."""
    advice = f"See all pipelines: batchledger status\nUse another folder: set {PIPELINES_VARIABLE}"
    return read_pipeline_file(choose_file(lambda path: not is_watch_file(path), name, "pipeline", advice))


def choose_file(is_of_kind: Callable[[Path], bool], name: str, kind: str, advice: str) -> Path:
    """Return the file of that name, if it is of the kind. Raises UnknownPipelineError with the nearest name.

    The other files are read for that error alone.
    """
    files = find_files()
    for path in files:
        if path.stem == name and is_of_kind(path):
            return path
    hint, folder = nearest(name, [path.stem for path in files if is_of_kind(path)]), pipelines_folder()
    raise UnknownPipelineError(
        f"There is no {kind} {name!r} in {folder}.",
        why="" if folder.is_dir() else "There is no such folder.",
        advice=f"{hint[0].upper()}{hint[1:]}\n{advice}",
        pipeline=name,
    )


def read_pipeline_file(path: Path) -> PipelineConfig:
    """Read and validate one file. Raises FileRefusedError with its mistakes, each with file, line, key and value.

    Its time and the length of its message are bounded, whatever the file holds. A valid file that asks for an extra
    which is missing here is a ConfigurationError.
    """
    document = read_keys(path, "a pipeline: it has no keys; write at least name, source and sink", _ALL_KEYS)
    context: dict[str, Any] = {"folder": path.parent, ENTRY_BY_CHECK: []}
    try:
        pipeline = PipelineConfig.model_validate(document.content, context=context)
    except ValidationError as error:
        refuse(path, list_faults(error, document, PipelineConfig, context[ENTRY_BY_CHECK]), _ALL_KEYS)
    require_file_name(path, document, "name", pipeline.name, _ALL_KEYS)
    for key, word in find_extras(document.content).items():
        line, column = document.locate(key.split("."))
        require_extra(word, f"{write_path(path)}:{line}:{column}: {key}: {word}")
    return pipeline
