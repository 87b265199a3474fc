"""``make bench``: take the measurements, print one table with goal, figure and ratio for each row."""

from collections.abc import Sequence
from statistics import median
from typing import Annotated

import typer
from rich import box
from rich.console import Console
from rich.table import Table

from bench.audit_cost import FILES, AuditCost, measure
from bench.records import write_topic
from bench.services import run_services

GOAL_SECONDS, GOAL_SHARE = 5.0, 0.10


def tell(costs: Sequence[AuditCost], records: int, rounds: int) -> Table:
    """Return the medians of each kind."""
    table = Table(title=f"Audit of {records:,} staged rows, medians of {rounds}", box=box.SIMPLE_HEAD)
    for heading in ("what", "batch s", "audit s", "audit / rest", f"≤ {GOAL_SECONDS:.0f} s, ≤ {GOAL_SHARE:.0%}"):
        table.add_column(heading, justify="left" if heading == "what" else "right")
    for kind in dict.fromkeys(each.kind for each in costs):
        of_kind = [each for each in costs if each.kind == kind]
        audit = median(each.audit for each in of_kind)
        whole = median(each.rest + each.audit for each in of_kind)
        share = median(each.audit / each.rest for each in of_kind)
        is_met = audit <= GOAL_SECONDS and share <= GOAL_SHARE
        goal = "" if "checks" in FILES[kind] else "met" if is_met else "missed"
        table.add_row(kind, f"{whole:.1f}", f"{audit:.2f}", f"{share:.1%}", goal)
    naive = [(each.naive, each.naive / each.rest) for each in costs if each.naive is not None]
    seconds, shares = zip(*naive, strict=True)
    table.add_row("a naive suite", "", f"{median(seconds):.2f}", f"{median(shares):.1%}", "")
    return table


def main(
    *,
    records: Annotated[int, typer.Option(min=1000, help="How many records a batch has.")] = 2_000_000,
    rounds: Annotated[int, typer.Option(min=1, help="How often each kind of batch is taken.")] = 5,
) -> None:
    """Measure what the audit adds to a batch."""
    console = Console()
    with run_services() as services:
        write_topic(services, records)
        costs = list(measure(services, rounds, records, console))
    console.print(tell(costs, records, rounds))


if __name__ == "__main__":
    typer.run(main)
