"""``batchledger watch``: prove a table that others wrote."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Annotated

import typer
from rich.text import Text

from batchledger.interfaces.cli.command_line import logger
from batchledger.interfaces.cli.commands import watch_orders as orders
from batchledger.interfaces.cli.printing import Shown
from batchledger.model.counting import describe_count
from batchledger.model.offsets import describe_ranges
from batchledger.proof.watching import Discrepancy, Found, TableLook, WatchOutcome

_ALWAYS = (Discrepancy.MISSING, Discrepancy.TWICE, Discrepancy.EXPIRED)
_EXIT_CODES = {WatchOutcome.PROVED: 0, WatchOutcome.WRONG: 3, WatchOutcome.CANNOT_SAY: 3}


def watch(  # noqa: PLR0913 -- one an option
    name: Annotated[
        str | None, typer.Argument(metavar="WATCH", help="One watch; otherwise all watches of the folder.")
    ] = None,
    *,
    everything: Annotated[bool, typer.Option("--all", help="Prove also again all that is proved.")] = False,
    forget: Annotated[
        bool, typer.Option("--forget", help="Forget what was proved; the next look is a first one.")
    ] = False,
    missing: orders.Missing = False,
    records: orders.Records = False,
    limit: orders.Limit = None,
    as_pipeline: orders.AsPipeline = None,
    schema: orders.Schema = None,
    adopt: orders.Adopt = None,
    apply: orders.Apply = False,
    reason: orders.Reason = None,
) -> Iterator[Shown]:
    """Prove a table that others wrote: each record of Kafka has one row, each row has its record.

    Reads only, except for --adopt with --apply. Ends with 3 if a table is wrong, or if that cannot be said.
    """
    from batchledger.config.pipeline_file import find_watch_files
    from batchledger.config.watch_file import load_watch, read_watch_file
    from batchledger.watching.telling import look_and_tell

    orders.require_order(
        {
            "WATCH": name,
            "--all": everything,
            "--forget": forget,
            "--missing": missing,
            "--records": records,
            "--limit": limit,
            "--as-pipeline": as_pipeline,
            "--schema": schema,
            "--adopt": adopt,
            "--apply": apply,
            "--reason": reason,
        }
    )
    if forget and name is not None:
        yield orders.forget_watch(name)
        return
    for config in map(read_watch_file, find_watch_files()) if name is None else [load_watch(name)]:
        if adopt is not None:
            yield orders.take_over(config, adopt, reason, apply=apply)
            continue
        look = look_and_tell(config, everything=everything, tell=logger.info)
        if records:
            shown = orders.show_records(config, look, limit)
        elif as_pipeline is not None and look.lacking:
            shown = orders.write_pipeline(config, as_pipeline, schema, look.lacking)
        else:
            shown = orders.list_missing(look) if missing else show_look(look)
        yield replace(shown, exit_code=_EXIT_CODES[look.outcome])


def show_look(look: TableLook) -> Shown:
    """Show what a look says: one line for each difference, with the first offsets."""
    from batchledger.ledger.watches import write_look

    return Shown(write_look(look), [Text("\n".join(_describe(look)), no_wrap=True)])


def _describe(look: TableLook) -> Iterable[str]:
    of = describe_count(len(look.partitions), "partition")
    offsets = look.offsets + look.late
    yield f"{look.watch}: {look.outcome}. {offsets:,} offsets in Kafka, {look.rows:,} rows, {of}"
    found = {each.difference: each for each in look.found}
    shown = [kind for kind in Discrepancy if kind in found or kind in _ALWAYS]
    width, column = len(f"{offsets:,}"), max(map(len, shown)) + 1
    for kind in shown:
        each = found.get(kind, Found(kind, 0))
        told = "      ".join(filter(None, [describe_ranges(each.ranges), kind.meaning]))
        yield f"  {kind:<{column}}{each.count:>{width},}{f'  {told}' if each.count else ''}"
    holes = ", ".join(f"{name} {count:,}" for name, count in look.holes.items() if count)
    yield f"  {'holes':<{column}}{sum(look.holes.values()):>{width},}  {holes}".rstrip()
    if look.late:
        yield f"  {'late':<{column}}{look.late:>{width},}  too young to be missing"
    yield f"  {'proved':<{column}}{look.proved:>{width},}" + (
        f"  {look.rechecked:,} of them again" if look.rechecked else ""
    )
    yield from look.notes
