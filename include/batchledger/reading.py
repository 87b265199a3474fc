"""Wires what a pipeline reads: the decoder of its records, and the schemas that they were written with."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

from batchledger.config.documents import find_inside
from batchledger.config.pipeline_file import PipelineConfig
from batchledger.ledger.fingerprints import require_fingerprint
from batchledger.ledger.known_hashes import require_key_secret, require_known_forms
from batchledger.ledger.ledger import PostgresLedger
from batchledger.ledger.writer_schemas import PostgresKeptSchemas, ReadSchemas
from batchledger.lifecycle.writer_schemas import SchemaBook
from batchledger.looking import load_named
from batchledger.model.batch import Attempt, Batch
from batchledger.model.erasure import ErasureKey
from batchledger.model.errors import BatchledgerError, ConfigurationError
from batchledger.model.hashing import fingerprint_of, make_hash
from batchledger.model.offsets import TopicPartition
from batchledger.model.records.columns import REST, Column
from batchledger.model.records.contract import FAULTS_SHOWN, Sample, with_added
from batchledger.model.records.lookup import Record, choose_newest
from batchledger.model.records.protection import ColumnProtection, describe_form
from batchledger.model.records.rules import SinkMode, UnknownFieldPolicy
from batchledger.model.records.writer_schemas import (
    FIRST_MESSAGE,
    Framing,
    SchemaId,
    SchemaType,
    SubjectVersion,
    WriterSchema,
)
from batchledger.settings.key_secret import read_key_secret
from batchledger.settings.registry_options import registry_settings
from batchledger.source.kafka.log import KafkaLog
from batchledger.source.kafka.records import read_share

if TYPE_CHECKING:
    import pyarrow as pa

    from batchledger.formats.decoding.decoder import RecordDecoder
    from batchledger.formats.decoding.registered import FindSchema, RegisteredDecoder
    from batchledger.formats.registry.client import Registry

TRIAL_SECRET = b"batchledger try: every person knows this secret"
"""What ``try`` hashes with: the same on every machine, so that a file can say what is expected."""


def make_decoder(pipeline: PipelineConfig, dsn: str) -> "RecordDecoder":
    """Return the decoder of a pipeline's records. ``open_schemas`` tells it the schemas that these name."""
    source, columns = pipeline.source, pipeline.source.value_columns
    if source.unknown_fields is UnknownFieldPolicy.ADD:
        columns = with_added(columns, PostgresLedger(dsn).list_added_columns(pipeline.name), source.outer)
    return _build_decoder(pipeline, columns, load_secret(pipeline) or b"")


def make_lone_decoder(pipeline: PipelineConfig, schema_file: Path | None = None) -> "RecordDecoder":
    """Return the decoder that asks neither ledger nor registry, and hashes with ``TRIAL_SECRET``.

    If records name their schema in a registry, all values have the one of ``schema_file``. Raises ConfigurationError.
    """
    source = pipeline.source
    decoder = _build_decoder(pipeline, source.value_columns, TRIAL_SECRET)
    if source.registry is None:
        return decoder
    if decoder.registered_keys is not None or source.reader is not None:
        raise ConfigurationError(
            f"Records of {pipeline.name} cannot be tried.",
            why=f"{'source.reader_schema' if source.reader else 'source.key'} needs the schemas of the registry, which "
            "is not asked.",
            advice=f"Try a copy of the file without it, or run it: batchledger run {pipeline.name}",
            pipeline=pipeline.name,
        )
    if schema_file is None or source.schema_type is None:
        raise ConfigurationError(
            f"Records of {pipeline.name} name their schema in a registry, which is not asked.",
            advice=f"Name the file of the schema of all values: batchledger try {pipeline.name} --schema-file FILE",
            pipeline=pipeline.name,
        )
    with _explaining_schema("--schema-file", str(schema_file), "Write the path of the schema's file."):
        schema = WriterSchema(0, source.schema_type, schema_file.read_text(encoding="utf-8"))
    return decoder.with_schemas(lambda _: schema)


def make_column_decoder(pipeline: PipelineConfig, dsn: str, names: Collection[str]) -> "RecordDecoder":
    """Return the decoder of some columns of a pipeline's records, which also finds the schemas that these name.

    What other columns hold is of no account. If the value has none of these columns, its first one is decoded: a value
    of no column makes no row.
    """
    declared = pipeline.source.value_columns
    chosen = tuple(each for each in declared if each.name in names) or declared[:1]
    return _build_decoder(pipeline, chosen, b"").with_schemas(_find_schemas(pipeline, dsn))


def _build_decoder(pipeline: PipelineConfig, columns: tuple[Column, ...], secret: bytes) -> "RecordDecoder":
    from batchledger.formats.decoding.decoder import Protector, RecordDecoder

    source, key = pipeline.source, pipeline.sink.key_columns
    values, keys = _make_registered(pipeline, columns), _make_registered_keys(pipeline)
    protector = Protector(source.protect, secret)
    return RecordDecoder(columns, source.tombstones, key, source.unknown_fields, source.outer, values, keys, protector)


def load_secret(pipeline: PipelineConfig) -> bytes | None:
    """Return the secret that columns are hashed with; None if none is. Raises ConfigurationError."""
    if ColumnProtection.HASH not in pipeline.source.protect.values():
        return None
    return read_key_secret(f"{pipeline.file}: source.protect")


def protect_key(pipeline: PipelineConfig, key: ErasureKey) -> ErasureKey:
    """Return the key as rows hold it, if columns of it are hashed. Raises ConfigurationError, ValueError for a mask."""
    protect = pipeline.source.protect
    masked = [each for each in key.columns if protect.get(each) is ColumnProtection.MASK]
    if masked:
        raise ValueError(f"{masked[0]} is masked, so rows of other values look the same; name other columns")
    hashed = [each for each in key.columns if protect.get(each) is ColumnProtection.HASH]
    secret = load_secret(pipeline) if hashed else None
    if secret is None:
        return key
    hash_text = make_hash(secret)
    pairs = ((name, hash_text(value) if name in hashed else value) for name, value in key.pairs)
    # Rows that have a column which is dropped by now have it in clear text.
    form = describe_form(hashed, protect, fingerprint_of(secret))
    return ErasureKey(tuple(pairs), clear=key.pairs, form=form)


def make_secret_check(pipeline: PipelineConfig, dsn: str) -> Callable[[], None]:
    """Return what refuses to hash columns or keys without their secret, or with another one than before.

    It raises ConfigurationError. It reads the secret when it is called, so decisions that hash nothing do without.
    """
    remembers_keys = pipeline.dedupe or pipeline.sequence or pipeline.sink.sink_mode is SinkMode.UPSERT

    def require_secret() -> None:
        secret = load_secret(pipeline)
        if secret is not None:
            require_fingerprint(dsn, pipeline.name, fingerprint_of(secret))
        if remembers_keys:
            require_key_secret(dsn, pipeline.name, read_key_secret)

    return require_secret


def make_erasure_check(pipeline: PipelineConfig, dsn: str) -> Callable[[Batch], None]:
    """Return what refuses a batch whose rows would hold erased keys in another form than the rows that were erased."""

    def find_form(columns: Sequence[str]) -> str:
        secret = load_secret(pipeline)
        fingerprint = None if secret is None else fingerprint_of(secret)
        return describe_form(columns, pipeline.source.protect, fingerprint)

    return partial(require_known_forms, dsn, find_form)


def _make_registered(pipeline: PipelineConfig, columns: tuple[Column, ...]) -> "RegisteredDecoder | None":
    source = pipeline.source
    if source.schema_type is None:
        return None
    from batchledger.formats.decoding.registered import RegisteredDecoder

    keeps = source.unknown_fields is UnknownFieldPolicy.KEEP
    return RegisteredDecoder(
        source.schema_type,
        source.framing,
        (*columns, REST) if keeps else columns,
        message=source.message or FIRST_MESSAGE,
        only_schema=_read_schema(pipeline, source.schema_type) if source.framing is Framing.NONE else None,
        reader=source.reader,
        refuses_undeclared=source.unknown_fields is UnknownFieldPolicy.QUARANTINE,
    )


def _make_registered_keys(pipeline: PipelineConfig) -> "RegisteredDecoder | None":
    source = pipeline.source
    key = source.outer.key
    if key is None or key.format.schema_type is None:
        return None
    from batchledger.formats.decoding.registered import KEY_HEADER, RegisteredDecoder

    return RegisteredDecoder(key.format.schema_type, source.framing, key.columns, header=KEY_HEADER)


def _read_schema(pipeline: PipelineConfig, type_: SchemaType) -> WriterSchema:
    name = str(pipeline.source.schema_file)
    advice = "Write the path of the schema's file from the folder of the pipeline file, in which it has to lie."
    with _explaining_schema(f"{pipeline.file}: source.schema_file", name, advice):
        return WriterSchema(0, type_, find_inside(pipeline.folder, name).read_text(encoding="utf-8"))


@contextmanager
def _explaining_schema(asked_by: str, name: str, advice: str) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError) as error:
        raise ConfigurationError(
            f"{asked_by}: {name} cannot be read. Nothing was read from Kafka.",
            why=f"{error}.",
            advice=advice,
            subject=name,
        ) from error


def open_schemas(pipeline: PipelineConfig, dsn: str) -> "Callable[[Attempt], FindSchema] | None":
    """Return what looks up the schemas that the records of an attempt name; None if they name none."""
    registry, client = pipeline.source.registry, open_registry(pipeline)
    if registry is None or client is None:
        return None
    return lambda attempt: SchemaBook(registry, client, PostgresKeptSchemas.of(dsn, registry, attempt)).find


def sample_topics(
    options: Mapping[str, str],
    topics: Sequence[str],
    records: int,
    columns: Sequence[Column] = (),
    registered: "RegisteredDecoder | None" = None,
) -> Sample:
    """Look at the newest records, about as many in each partition. Raises ConfigurationError without a topic.

    If these name their schemas, ``registered`` finds them, and the schemas are looked at instead of the values.
    """
    from batchledger.formats.decoding.sampling import look_at, look_at_schemas

    log = KafkaLog(options).read_log(topics)
    if not log.log_by_partition:
        raise ConfigurationError(
            f"Kafka has no topic {' or '.join(topics)}. Nothing was read.",
            advice="Correct the name, or create the topic.",
            subject=topics[0],
        )
    places: list[str] = []

    def read() -> "Iterator[pa.RecordBatch]":
        for batch in read_share(options, choose_newest(log.log_by_partition, records)):
            names = zip(*(batch[name].to_pylist() for name in ("topic", "partition", "offset")), strict=True)
            places.extend(f"{TopicPartition(topic, number)}@{offset}" for topic, number, offset in names)
            yield batch

    if registered is not None:
        found, why_by_number = registered.count_schemas(read())
        faults = [(places[number], why_by_number[number]) for number in sorted(why_by_number)[:FAULTS_SHOWN]]
        return look_at_schemas(found, columns, len(why_by_number), registered.find_reader(), faults)
    return look_at((value for batch in read() for value in batch["value"].to_pylist()), columns, places)


def sample_records(
    pipeline: PipelineConfig, dsn: str, options: Mapping[str, str], records: int, decoder: "RecordDecoder"
) -> Sample:
    """Look at the newest records of a pipeline's topics, as ``sample_topics``."""
    decoder = decoder.with_schemas(_find_schemas(pipeline, dsn))
    return sample_topics(options, pipeline.source.topics, records, decoder.columns, decoder.registered)


def _find_schemas(pipeline: PipelineConfig, dsn: str) -> "FindSchema":
    """Return what looks schemas up as an attempt does, in the ledger first. It keeps nothing."""
    name, client = pipeline.source.registry, open_registry(pipeline)
    if name is None or client is None:
        return lambda wanted: f"schema {wanted} is unknown: the pipeline names no registry"
    return SchemaBook(name, client, ReadSchemas(dsn, name), wait=_wait_for_nothing, trusts_kept=True).find


def _wait_for_nothing(seconds: float) -> None:
    """A person looks, and may look again."""


def decode_records(pipeline: PipelineConfig, dsn: str, records: Sequence[Record]) -> tuple[Record, ...]:
    """Return the records with what their values say, if these are Avro or Protobuf, or why that cannot be had."""
    import pyarrow as pa

    from batchledger.formats.records import write_headers

    try:
        decoder = _make_registered(pipeline, ())
        if decoder is None:
            return tuple(records)
        find = _find_schemas(pipeline, dsn)
    except ConfigurationError as error:
        return tuple(replace(each, undecoded=error.message) for each in records)

    @cache
    def explain(wanted: SchemaId | SubjectVersion) -> WriterSchema | str:
        try:
            return find(wanted)
        except BatchledgerError as error:
            return f"schema {wanted} cannot be read: {error.why.rstrip('.') or error.message}"

    # What no other column takes is the whole value.
    whole = replace(decoder, columns=(REST,), find_schema=explain, reader=None, refuses_undeclared=False)
    values = pa.array([each.value for each in records], pa.binary())
    found = whole.decode(values, pa.array([write_headers(each.headers) for each in records], pa.string()))
    texts = iter(found.rows.column(0).to_pylist())
    return tuple(
        replace(each, decoded=next(texts) or "{}")
        if found.is_decoded[place]
        else replace(each, undecoded=found.errors.get(place))
        for place, each in enumerate(records)
    )


def sample_registry(pipeline: PipelineConfig, dsn: str, decoder: "RecordDecoder") -> Sample:
    """Look at the newest schema that each topic has in the registry, by the usual name. Raises ConfigurationError."""
    from batchledger.formats.decoding.sampling import look_at_schemas

    registry = open_registry(pipeline)
    subjects = [f"{topic}-value" for topic in pipeline.source.topics]
    found = [schema for each in subjects if registry and (schema := registry.find_latest(each)) is not None]
    registered = decoder.with_schemas(_find_schemas(pipeline, dsn)).registered
    if not found or registered is None:
        raise ConfigurationError(
            f"The registry has no subject {' or '.join(subjects)}." if registry else "The pipeline names no registry.",
            why="The schemas of a topic's values are usually registered by that name." if registry else "",
            advice="Look at records instead: --from-topic",
            pipeline=pipeline.name,
        )
    written = dict.fromkeys(((each, registered.message) for each in found), 1)
    return replace(look_at_schemas(written, decoder.columns, 0, registered.find_reader()), noun="schema")


def open_registry(pipeline: PipelineConfig) -> "Registry | None":
    """Return the registry that a pipeline names."""
    registry = pipeline.source.registry
    if registry is None:
        return None
    from batchledger.formats.registry.client import Registry

    return Registry(registry_settings(load_named(pipeline, "source.registry", registry, "http")))
