"""``batchledger watch`` with an order: bring back rows that a table lacks, or let a pipeline take the table over."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from batchledger.interfaces.cli.command_line import decide, find_ledger, load_pipeline, logger
from batchledger.interfaces.cli.commands.looks import note_look
from batchledger.interfaces.cli.commands.records import describe_records
from batchledger.interfaces.cli.display.decisions import describe_decided
from batchledger.interfaces.cli.printing import Shown
from batchledger.model.batch import DecisionKind
from batchledger.model.counting import describe_count
from batchledger.model.errors import UnknownPipelineError
from batchledger.model.offsets import OffsetRange, count_offsets
from batchledger.monitoring.health import DEFAULT_LEDGER
from batchledger.proof.watching import LACKING, TableLook

if TYPE_CHECKING:
    from batchledger.config.watch_file import WatchConfig

RECORDS_SHOWN = 20

Missing = Annotated[bool, typer.Option("--missing", help="Look, and list all offsets whose row is missing or deleted.")]
Records = Annotated[bool, typer.Option("--records", help="With --missing: show their records, from Kafka.")]
Limit = Annotated[
    int | None,
    typer.Option(min=1, show_default=str(RECORDS_SHOWN), help="With --records: how many, in the order of offsets."),
]
AsPipeline = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="With --missing: write a pipeline file whose replay brings exactly these."),
]
Schema = Annotated[
    str | None,
    typer.Option(metavar="COLUMNS", help="With --as-pipeline: its source.schema; else the newest records say it."),
]
Adopt = Annotated[
    str | None, typer.Option(metavar="PIPELINE", help="Let this pipeline go on with the table: say what would happen.")
]
Apply = Annotated[bool, typer.Option("--apply", help="With --adopt: do it.")]
Reason = Annotated[str | None, typer.Option(help="With --adopt --apply: why. The ledger keeps it with your name.")]

_BELONGS = {
    "--missing": "WATCH",
    "--adopt": "WATCH",
    "--forget": "WATCH",
    "--records": "--missing",
    "--as-pipeline": "--missing",
    "--limit": "--records",
    "--schema": "--as-pipeline",
    "--apply": "--adopt",
    "--reason": "--adopt",
}
_APART = (
    ("--forget", "--all"),
    ("--forget", "--missing"),
    ("--forget", "--adopt"),
    ("--adopt", "--all"),
    ("--adopt", "--missing"),
    ("--records", "--as-pipeline"),
)


def require_order(options: Mapping[str, object]) -> None:
    """Refuse an option that would be dropped. ``options``: what was written, by its name. Raises typer.BadParameter."""
    written = {name for name, value in options.items() if value is not None and value is not False}
    for name, owner in _BELONGS.items():
        if name in written and owner not in written:
            what = "one watch: name it" if owner == "WATCH" else f"{owner}, which is not written"
            raise typer.BadParameter(f"{name} belongs to {what}")
    for one, other in _APART:
        if {one, other} <= written:
            raise typer.BadParameter(f"{one} and {other} do not go together: choose one")
    if "--apply" in written and not str(options["--reason"] or "").strip():
        raise typer.BadParameter("give a --reason; others will read it in the ledger")


def forget_watch(name: str) -> Shown:
    """Forget what was proved of a watch. If its file is gone, the usual ledger is asked for it."""
    from batchledger.config.watch_file import load_watch
    from batchledger.looking import watch_ledger_dsn
    from batchledger.watching.telling import forget

    try:
        config = load_watch(name)
    except UnknownPipelineError:
        if not forget(name, find_ledger(DEFAULT_LEDGER), ()):
            raise
        had = True
    else:
        had = forget(name, watch_ledger_dsn(config), config.alerts)
    return Shown({"watch": name, "forgotten": had}, [f"{name}: {'forgotten' if had else 'nothing was proved yet'}."])


def take_over(config: "WatchConfig", pipeline: str, reason: str | None, *, apply: bool) -> Shown:
    """Let the pipeline go on with the watched table, or say what would happen."""
    from batchledger.watching.adopting import Adoption, find_table
    from batchledger.watching.building import build_table, build_watch

    target = load_pipeline(pipeline)
    watch, table = build_watch(config, logger.info), find_table(config, target)
    adoption = Adoption(watch, build_table(config), target, table, datetime.now(UTC), is_kept=apply)
    decided = adoption.carry_out(decide(reason or "dry run"))
    shown = describe_decided(pipeline, DecisionKind.ADOPT_ROWS, replace(decided, means=()), dry_run=not apply)
    statements = [Text(each, no_wrap=True) for each in decided.means]
    return Shown(shown.document | {"explained": decided.means}, [*statements, *shown.parts])


def show_records(config: "WatchConfig", look: TableLook, limit: int | None) -> Shown:
    """Show the records of the offsets without a row. The ledger keeps who has looked."""
    from batchledger.looking import watch_ledger_dsn
    from batchledger.watching.repair import read_missing

    records = read_missing(config, look.lacking, limit or RECORDS_SHOWN)
    note_look(watch_ledger_dsn(config), look.watch, [(each.partition, each.offset) for each in records.records])
    return describe_records(look.watch, records)


def list_missing(look: TableLook) -> Shown:
    """List every range, one a line, as commands take it."""
    ranges = {
        kind: [part for each in look.found if each.difference is kind for part in each.ranges] for kind in LACKING
    }
    told = [f"{look.watch}: {describe_count(count_offsets(look.lacking), 'offset')} without a row, {look.outcome}."]
    for kind, parts in ranges.items():
        if parts:
            told += [f"{kind}, {count_offsets(parts):,}: {kind.meaning}", *(f"  {each}" for each in parts)]
    document = {"watch": look.watch, "looked_at": look.looked_at, "outcome": look.outcome}
    return Shown(
        {**document, **{str(kind): [str(each) for each in parts] for kind, parts in ranges.items()}},
        [Text("\n".join(told), no_wrap=True)],
    )


def write_pipeline(config: "WatchConfig", name: str, schema: str | None, ranges: Sequence[OffsetRange]) -> Shown:
    """Write the file of a pipeline that brings the records of the ranges; show what a person does with it."""
    from batchledger.watching.repair import find_pipeline, write_insert, write_orders

    pipeline = find_pipeline(config, name, schema, ranges)
    orders, insert = list(write_orders(name, config.name, ranges)), write_insert(config, pipeline)
    records = describe_count(count_offsets(ranges), "offset")
    lines = [
        f"Read {pipeline.file}, above all its schema:",
        f"  {pipeline.source.record_schema}",
        f"Bring the records of {records} into table {name}:",
        *(f"  {each}" for each in orders),
        f"Then insert its rows into {config.table.name}, and look again: batchledger watch {config.name}",
        *([f"  {insert}"] if insert else ["  _topic, _partition and _offset say which record a row is of."]),
    ]
    return Shown(
        {
            "watch": config.name,
            "pipeline": name,
            "file": str(pipeline.file),
            "schema": pipeline.source.record_schema,
            "orders": orders,
            "insert": insert,
        },
        [Text("\n".join(lines), no_wrap=True)],
    )
