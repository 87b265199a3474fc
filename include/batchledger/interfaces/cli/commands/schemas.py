"""``batchledger schema``: what a pipeline declares beside what its records and its table have."""

from typing import Annotated

import typer

from batchledger.interfaces.cli.command_line import load_pipeline
from batchledger.interfaces.cli.display import schemas as display
from batchledger.interfaces.cli.printing import Shown


def schema(
    pipeline: Annotated[
        str | None, typer.Argument(metavar="PIPELINE", help="The name of a pipeline file, without .yaml.")
    ] = None,
    *,
    from_topic: Annotated[bool, typer.Option("--from-topic", help="Look at the newest records, too.")] = False,
    from_registry: Annotated[
        bool, typer.Option("--from-registry", help="Look at the newest schemas of the registry instead of records.")
    ] = False,
    topic: Annotated[str | None, typer.Option(help="Without PIPELINE: propose a file for this topic.")] = None,
    connection: Annotated[str, typer.Option(help="With --topic: the connection of its Kafka.")] = "kafka_default",
    records: Annotated[int, typer.Option(min=1, help="How many records to look at.")] = 1_000,
) -> Shown:
    """Compare the declared columns with the table, and with the newest records. Changes nothing.

    Each difference is additive, widening or breaking, with the line of
    the pipeline file and the statement that it takes. Exit code 3 if one
    is breaking.
    """
    from batchledger.ledger.record_schemas import list_schemas
    from batchledger.ledger.writer_schemas import list_used_schemas
    from batchledger.looking import ledger_dsn
    from batchledger.reading import sample_topics
    from batchledger.wiring import compare_schema

    if (pipeline is None) is (topic is None):
        raise typer.BadParameter("name a pipeline, or a topic by --topic")
    if topic is not None:
        from batchledger.settings.connections import kafka_options, load_connection

        options = kafka_options(load_connection(connection, ("kafka",), "--connection"))
        return display.describe_proposal(topic, connection, sample_topics(options, [topic], records))
    config = load_pipeline(str(pipeline))
    contract = compare_schema(config, records if from_topic else 0, is_registry_asked=from_registry)
    dsn = ledger_dsn(config)
    versions, used = list_schemas(dsn, config.name), list_used_schemas(dsn, config.name)
    return display.describe_contract(config, contract, versions, used)
