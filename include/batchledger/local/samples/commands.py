"""``batchledger produce``: sample records for a pipeline's topic."""

import dataclasses
from typing import TYPE_CHECKING, Annotated

import typer

from batchledger.interfaces.cli.command_line import AsJson, Name, load_pipeline
from batchledger.interfaces.cli.printing import Shown, new_table, pick, show, standard_error
from batchledger.local.samples.guarantee import RECORDS_PER_TRANSACTION, Guarantee, Transactions
from batchledger.model.counting import describe_count

if TYPE_CHECKING:
    from batchledger.local.samples.samples import Produced


def produce(
    pipeline: Name,
    *,
    records: Annotated[
        int | None, typer.Option(min=1, help="How many to write. Without it, the topic flights gets its data set.")
    ] = None,
    partitions: Annotated[int, typer.Option(min=1, help="Partitions of the topic, if it has to be created.")] = 4,
    guarantee: Annotated[Guarantee, typer.Option(help="The guarantee of the producer.")] = Guarantee.IDEMPOTENT,
    records_per_transaction: Annotated[
        int | None, typer.Option(min=1, help="With transactional: records of one transaction.", show_default="1000")
    ] = None,
    abort_every: Annotated[
        int | None, typer.Option(min=1, help="With transactional: abort every N-th transaction.", metavar="N")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Write sample records to the pipeline's topic. An interrupted data set goes on where it stopped.

    Exit code 1 if a record failed, or if it is unknown whether it was written.
    With acks_0 it stays unknown, and the exit code is 0.
    """
    from batchledger.local.samples.samples import SampleOrder, produce_samples

    if guarantee is not Guarantee.TRANSACTIONAL and (records_per_transaction or abort_every):
        raise typer.BadParameter("--records-per-transaction and --abort-every need --guarantee transactional")
    transactions = Transactions(records_per_transaction or RECORDS_PER_TRANSACTION, abort_every)
    order = SampleOrder(records, partitions, guarantee, transactions)
    produced = produce_samples(load_pipeline(pipeline), order, standard_error)
    show(describe_produced(produced), as_json)
    if not produced.is_complete:
        raise typer.Exit(1)


def describe_produced(produced: "Produced") -> Shown:
    """Show what was written to a topic, what the producer knows about it, and what its guarantee means."""
    known = dataclasses.asdict(produced.deliveries)
    document = {
        **pick(produced, "topic", "already_there"),
        **known,
        "guarantee": produced.guarantee,
        "offsets_gained": produced.gained,
        "explanation": produced.guarantee.explanation,
    }
    topic, before = produced.topic, produced.already_there
    if known["sent"] == 0:
        return Shown(
            document, [f"Topic {topic} already holds all {describe_count(before, 'record')}; nothing was written."]
        )
    told = {name: count for name, count in known.items() if count is not None}
    table = new_table(f"Guarantee: {produced.guarantee}", *told, "offsets gained")
    table.add_row(*(f"{count:,}" for count in (*told.values(), produced.gained)))
    records, offsets = describe_count(known["sent"], "record"), describe_count(before, "offset")
    sent = f"Sent {records} to topic {topic}, which had {offsets}."
    return Shown(document, [sent, table, produced.guarantee.explanation])
