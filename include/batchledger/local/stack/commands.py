"""``batchledger up``, ``down`` and ``status``: the local services on the command line."""

import dataclasses
import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from batchledger.local.stack.home import Home, Ports

if TYPE_CHECKING:
    from batchledger.local.stack.local_stack import Progress
    from batchledger.local.stack.status import StackStatus

_COLOUR = {"running": "green", "silent": "yellow", "stopped": "red"}

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]


def up(as_json: AsJson = False) -> None:
    """Start the local services that do not run yet, and bring the ledger's schema up to date."""
    from batchledger.adapters.postgres.ledger.migrate import migrate
    from batchledger.local.stack import local_stack
    from batchledger.local.stack.status import look_at_stack

    home = Home.of_project()
    ports = Ports.choose(home)
    started = time.monotonic()
    with _show_progress() as progress:
        local_stack.up(home, ports, migrate=migrate, progress=progress)
    found = look_at_stack(home, ports)
    if as_json:
        _print_json(dataclasses.asdict(found))
        return
    show(found)
    Console(stderr=True).print(f"ready after {time.monotonic() - started:.1f} s")


def down(as_json: AsJson = False) -> None:
    """End every process that `up` has started. Data and logs stay."""
    from batchledger.local.stack import local_stack

    with Console(stderr=True).status("ending the local services"):
        ended = local_stack.down(Home.of_project())
    if as_json:
        _print_json({"ended": ended})
    else:
        Console().print(f"ended: {', '.join(ended)}" if ended else "nothing was running")


def look() -> "StackStatus":
    """Look at the local services of this project."""
    from batchledger.local.stack.status import look_at_stack

    home = Home.of_project()
    return look_at_stack(home, Ports.choose(home))


def show(found: "StackStatus") -> None:
    """Print the services, where to reach them and what they take."""
    _print_table(found)
    _print_addresses(found)


@contextmanager
def _show_progress() -> "Iterator[Progress]":
    """On stderr: what is being started now, and a line for each step that is done."""
    console = Console(stderr=True)
    started: dict[str, float] = {}
    with console.status("looking at what runs") as line:

        def progress(name: str, state: str) -> None:
            if state == "starting":
                started[name] = time.monotonic()
            elif state != "ready":
                console.print(state, markup=False, highlight=False, soft_wrap=True, style="yellow")
            else:
                seconds = time.monotonic() - started.pop(name)
                console.print(f"[green]ready[/] {name} [dim]{seconds:.1f} s[/]")
            line.update(f"starting {', '.join(started)}")

        yield progress


def _print_json(document: object) -> None:
    sys.stdout.write(json.dumps(document, indent=2) + "\n")


def _print_table(found: "StackStatus") -> None:
    table = Table("service", "state", "pid", "port", "memory")
    for one in found.services:
        memory = f"{one.memory_bytes / 2**20:.0f} MiB" if one.processes else ""
        state = f"[{_COLOUR[one.state]}]{one.state}[/]"
        table.add_row(one.name, state, str(one.pid or ""), str(one.port or ""), memory)
    total_bytes = sum(one.memory_bytes for one in found.services)
    table.add_section()
    table.add_row("", "", "", "", f"{total_bytes / 2**20:.0f} MiB")
    Console().print(table)


def _print_addresses(found: "StackStatus") -> None:
    address_by_name = {
        "Kafka": found.kafka["bootstrap_servers"],
        "warehouse": found.warehouse["dsn"],
        "Spark Connect": found.spark["remote"],
        "Airflow": f"{found.airflow['url']} as {found.airflow['user']}, password in {found.airflow['password_file']}",
    }
    for name, address in address_by_name.items():
        Console(soft_wrap=True, highlight=False).print(f"{name:<14} {address}")
