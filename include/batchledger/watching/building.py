"""Builds a watch from its file."""

from collections.abc import Callable
from datetime import timedelta
from functools import partial

from batchledger.config.pipeline_file import PipelineConfig
from batchledger.config.watch_file import WatchConfig
from batchledger.database.datasets import name_database_table
from batchledger.ledger.watches import WatchStore
from batchledger.looking import watch_ledger_dsn
from batchledger.model.datasets import Dataset, name_topic, split_table
from batchledger.model.records.rules import TombstonePolicy, UnknownFieldPolicy
from batchledger.reading import make_column_decoder
from batchledger.settings.connections import kafka_options, load_connection, postgres_dsn, require_type, spark_server
from batchledger.source.kafka.log import KafkaLog
from batchledger.source.kafka.records import read_share
from batchledger.watching.by_key import KeyedTable
from batchledger.watching.keyed import KeyRule
from batchledger.watching.look import TableWatch, WatchRules
from batchledger.watching.postgres import PostgresTable
from batchledger.watching.postgres_keys import PostgresKeys
from batchledger.watching.relation import Relation
from batchledger.watching.table import CountedTable, RowCoordinates


def build_watch(config: WatchConfig, tell: Callable[[str], None] = lambda _: None) -> TableWatch:
    """Build what a look works with. Opens nothing yet. Raises ConfigurationError."""
    log = KafkaLog(source_options(config))
    table = build_table(config) if config.key is None else build_keyed_table(config, log)
    return TableWatch(make_rules(config), log, table, WatchStore(watch_ledger_dsn(config)), tell)


def source_options(config: WatchConfig) -> dict[str, str]:
    """Return the options with which clients read the topics."""
    return kafka_options(load_connection(config.source.connection, ("kafka",), f"{config.file}: source.connection"))


def _table_dsn(config: WatchConfig) -> str:
    return postgres_dsn(
        load_connection(config.table.connection or "", ("postgres",), f"{config.file}: table.connection")
    )


def _find_relation(config: WatchConfig, indexed: str) -> Relation:
    return Relation(_table_dsn(config), config.table.name, config.limits.timeout, f"Create an index on the {indexed}")


def make_rules(config: WatchConfig) -> WatchRules:
    """Return the part of the file that the steps need."""
    return WatchRules(
        name=config.watch,
        subject=config.subject,
        topics=tuple(config.source.topics),
        holes=config.source.holes,
        lateness=timedelta(seconds=config.lateness),
        since=config.since_moment,
        # A row of an upserted table follows the newest record of its key, which may lie anywhere.
        recheck=0 if config.compare else config.recheck / 100,
        fingerprint=bool(config.fingerprint),
    )


def build_table(config: WatchConfig) -> CountedTable:
    """Build what reads a table whose rows have coordinates. Raises ConfigurationError if they have none."""
    places = config.places
    coordinates = RowCoordinates(places.partition, places.offset, places.topic)
    if config.table.catalog is not None:
        return _build_lake_table(config, config.table.catalog, coordinates)
    of_rows = (coordinates, tuple(config.source.topics), config.limits.max_rows, tuple(config.fingerprint))
    return PostgresTable(_find_relation(config, "coordinates"), *of_rows)


def name_datasets(config: WatchConfig) -> tuple[list[Dataset], Dataset | None]:
    """Return what the topics and the table are called outside of Batchledger; None for a table of a lake."""
    servers = source_options(config)["bootstrap.servers"]
    topics = [name_topic(servers, topic) for topic in config.source.topics]
    if config.table.connection is None:
        return topics, None
    return topics, name_database_table(_table_dsn(config), split_table(config.table.name))


def _build_lake_table(config: WatchConfig, catalog: str, coordinates: RowCoordinates) -> CountedTable:
    # Imported here because both take seconds, and other tables do without them.
    from batchledger.watching.iceberg import open_lake_table

    topics, bounds, spark = tuple(config.source.topics), config.limits, config.table.spark
    of_table = (config.table.name, coordinates, topics, bounds.max_rows, bounds.timeout)
    lake = open_lake_table(catalog, f"{config.file}: table.catalog", *of_table)
    if spark is None:
        return lake
    from batchledger.source.spark.session import open_connect_session
    from batchledger.watching.spark_counting import SparkTable

    asked_by = f"{config.file}: table.spark"
    server = load_connection(spark, ("spark-connect",), asked_by)
    require_type(server, "spark-connect", asked_by=asked_by)
    url, tls = spark_server(server)
    # A session keeps the first catalog that it sees under a name, and its login.
    return SparkTable(lake, partial(open_connect_session, url, f"{spark}/watch/{catalog}", tls=tls))


def build_keyed_table(config: WatchConfig, log: KafkaLog) -> KeyedTable:
    """Build what asks the table by key. Records are decoded as the ones of a pipeline with such a key."""
    rule = KeyRule(tuple(config.key or ()), *((config.compare.version, config.compare.names) if config.compare else ()))
    changes: dict[str, object] = {"unknown_fields": UnknownFieldPolicy.IGNORE}
    if config.deletes:
        changes["tombstones"] = TombstonePolicy.DELETE
    pipeline = PipelineConfig.model_validate(
        {
            "name": config.watch,
            "source": config.source.model_copy(update=changes),
            "sink": {"table": config.watch, "mode": "upsert", "key": config.key},
        },
        context={"folder": config.file.parent},
    )
    decoder = make_column_decoder(pipeline, watch_ledger_dsn(config), rule.needed)
    rows = PostgresKeys(_find_relation(config, "key"), rule, config.limits.max_rows)
    return KeyedTable(rows, decoder, partial(read_share, log.options))
