"""What a person needs to bring missing rows into a watched table: their records, and a pipeline for exactly these."""

from collections.abc import Iterator, Sequence

from psycopg import sql
from pydantic import ValidationError

from batchledger.config.pipeline_file import PipelineConfig, read_pipeline_file
from batchledger.config.python_pipelines import write_file
from batchledger.config.watch_file import WatchConfig
from batchledger.model.errors import ConfigurationError
from batchledger.model.offsets import OffsetRange
from batchledger.model.records.columns import COORDINATE_COLUMNS
from batchledger.model.records.contract import Contract
from batchledger.model.records.lookup import FoundRecords, combine_records, find_reach
from batchledger.reading import sample_topics
from batchledger.source.kafka.log import KafkaLog
from batchledger.source.kafka.records import read_first
from batchledger.watching.building import source_options

RANGES_IN_ORDER = 1_000
_SAMPLED = 1_000


def read_missing(config: WatchConfig, ranges: Sequence[OffsetRange], limit: int) -> FoundRecords:
    """Return the first ``limit`` records of the ranges, as Kafka has them now."""
    options = source_options(config)
    reach = find_reach(ranges, KafkaLog(options).read_log(config.source.topics).log_by_partition)
    return combine_records(reach, read_first(options, reach.readable, limit + 1), (), limit)


def propose_schema(config: WatchConfig) -> str:
    """Return the schema that takes the newest records of the topics. Raises ConfigurationError if these are no JSON."""
    sample = sample_topics(source_options(config), config.source.topics, _SAMPLED)
    proposal = Contract((), sample).proposal
    if not proposal:
        raise ConfigurationError(
            f"No schema was found in the {sample.records:,} newest records. No file was written.",
            why=f"{sample.unreadable:,} of them are no JSON objects.",
            advice='Write the columns: --schema "id bigint, amount decimal(9,2)"\n'
            "For Avro or Protobuf: write any column, then give the file source.format and source.registry.",
            pipeline=config.name,
        )
    return proposal


def find_pipeline(config: WatchConfig, name: str, schema: str | None, ranges: Sequence[OffsetRange]) -> PipelineConfig:
    """Return a pipeline whose replay of the ranges brings their records into a new table of this name.

    It reads nothing else: it has no DAG, and a run that a person starts begins at the end of the topics. If it has a
    file, that is the pipeline; a person may have corrected it. Raises ConfigurationError.
    """
    path = config.file.parent / f"{name}.yaml"
    if not path.exists():
        return _make_pipeline(config, name, schema or propose_schema(config), ranges)
    found = read_pipeline_file(path)
    same = (config.source.connection, config.ledger, ("public", name), "none")
    is_same = (found.source.connection, found.sink.ledger_connection, found.sink.ledger_table, found.dag.tasks) == same
    if schema or not is_same or not _name_topics(ranges) <= {*found.source.topics}:
        raise ConfigurationError(
            f"{path} is there, and is kept as it is. Nothing was written.",
            why="" if is_same else "It is another pipeline.",
            advice="Choose another name, or leave out --schema.",
            pipeline=name,
        )
    return found


def _make_pipeline(config: WatchConfig, name: str, schema: str, ranges: Sequence[OffsetRange]) -> PipelineConfig:
    topics = _name_topics(ranges)
    keys = {
        "name": name,
        "source": {
            "connection": config.source.connection,
            "topics": [each for each in config.source.topics if each in topics],
            "schema": schema,
            "start": "latest",
            "holes": config.source.holes,
        },
        "sink": {"type": "postgres", "connection": config.ledger, "table": name},
        "dag": {"tasks": "none"},
    }
    try:
        pipeline = PipelineConfig.model_validate(keys, context={"folder": config.file.parent})
    except ValidationError as error:
        faults = "\n".join(f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors())
        raise ConfigurationError(f"No pipeline {name} can be made. No file was written.", why=faults) from None
    write_file(pipeline, f"# `batchledger watch {config.name} --missing --as-pipeline {name}` has made this file.\n")
    return pipeline


def _name_topics(ranges: Sequence[OffsetRange]) -> set[str]:
    return {each.partition.topic for each in ranges}


def write_orders(pipeline: str, watch: str, ranges: Sequence[OffsetRange]) -> Iterator[str]:
    """Yield the commands that bring the records of the ranges, and of no other offset."""
    for at in range(0, len(ranges), RANGES_IN_ORDER):
        asked = " ".join(f'--range "{each}"' for each in ranges[at : at + RANGES_IN_ORDER])
        yield f'batchledger replay {pipeline} {asked} --reason "rows that watch {watch} misses"'


def write_insert(config: WatchConfig, pipeline: PipelineConfig) -> str | None:
    """Return the statement that takes the rows over, each once; None if the table is elsewhere, or has no coordinates.

    It leaves out a row that has come by another way meanwhile.
    """
    places = config.coordinates
    if places is None:
        return None
    pairs = dict(zip((places.topic, places.partition, places.offset), COORDINATE_COLUMNS, strict=True))
    own = {path: place for path, place in pairs.items() if path is not None}
    if config.table.connection != config.ledger or any(set(path) & {".", ":"} for path in own):
        return None
    columns = {**own, **{each.name: each.name for each in pipeline.source.columns if each.name not in own}}
    same = sql.SQL(" and ").join(
        sql.SQL("t.{} = m.{}").format(sql.Identifier(path), sql.Identifier(place)) for path, place in own.items()
    )
    statement = sql.SQL(
        "insert into {table} ({names}) select {values} from {missing} m where not exists (select from {table} t "
        "where {same});"
    )
    return statement.format(
        table=sql.Identifier(*config.table.name.split(".", 1)),
        missing=sql.Identifier("public", pipeline.name),
        names=sql.SQL(", ").join(map(sql.Identifier, columns)),
        values=sql.SQL(", ").join(sql.Identifier("m", each) for each in columns.values()),
        same=same,
    ).as_string()
