"""``batchledger up``, ``down`` and ``status``: the local services on the command line."""

import dataclasses
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table
from rich.text import Text

from batchledger.interfaces.cli.command_line import AsJson
from batchledger.interfaces.cli.printing import Shown, show, standard_error
from batchledger.local.stack.home import Home, Ports

if TYPE_CHECKING:
    from batchledger.local.stack.local_stack import Progress
    from batchledger.local.stack.status import StackStatus

_COLOUR = {"running": "green", "silent": "yellow", "stopped": "red"}


WithRegistry = Annotated[bool, typer.Option("--registry", help="Start a schema registry, too.")]


def up(registry: WithRegistry = False, as_json: AsJson = False) -> None:
    """Start the local services that do not run yet, and bring the ledger's tables up to date."""
    from batchledger.interfaces.cli.display.batches import describe_migrated
    from batchledger.ledger.grants import set_up_ledger
    from batchledger.local.stack import local_stack
    from batchledger.local.stack.status import look_at_stack

    home = Home.of_project()
    ports = Ports.choose(home)
    started = time.monotonic()
    moved: list[tuple[str | None, str | None]] = []
    with _show_progress() as progress:
        local_stack.up(
            home,
            ports,
            services=local_stack.ALL_SERVICES if registry else local_stack.USUAL_SERVICES,
            set_up_ledger=lambda dsn, secret, role: moved.append(set_up_ledger(dsn, secret, role)),
            progress=progress,
        )
    for before, after in moved:
        if before not in (None, after):
            standard_error.print(describe_migrated(before, after), highlight=False)
    found = look_at_stack(home, ports)
    show(describe(found), as_json)
    if not as_json:
        standard_error.print(f"ready after {time.monotonic() - started:.1f} s")


def down(as_json: AsJson = False) -> None:
    """End every process that `up` has started. Data and logs stay."""
    from batchledger.local.stack import local_stack

    with standard_error.status("ending the local services"):
        ended = local_stack.down(Home.of_project())
    show(Shown({"ended": ended}, [f"ended: {', '.join(ended)}" if ended else "nothing was running"]), as_json)


def look() -> Shown:
    """Look at the local services of this project; there are none without the extra ``local``."""
    from batchledger.config.extras import has_extra

    if not has_extra("local"):
        return Shown({"services": []})
    from batchledger.local.stack.status import look_at_stack

    home = Home.of_project()
    return describe(look_at_stack(home, Ports.choose(home)))


def describe(found: "StackStatus") -> Shown:
    """Show the services, their addresses and their memory."""
    table = Table("service", "state", "pid", "port", "memory")
    for one in found.services:
        memory = f"{one.memory_bytes / 2**20:.0f} MiB" if one.processes else ""
        state = f"[{_COLOUR[one.state]}]{one.state}[/]"
        table.add_row(one.name, state, str(one.pid or ""), str(one.port or ""), memory)
    table.add_section()
    table.add_row("", "", "", "", f"{sum(one.memory_bytes for one in found.services) / 2**20:.0f} MiB")
    address_by_name = {
        "Kafka": "{bootstrap_servers} as {user}, login in {login_file}".format(**found.kafka),
        "warehouse": found.warehouse["dsn"],
        "Spark Connect": found.spark["remote"],
        "Airflow": f"{found.airflow['url']} as {found.airflow['user']}, password in {found.airflow['password_file']}",
    }
    if found.registry:
        address_by_name["registry"] = found.registry["url"]
    addresses = [Text(f"{name:<14} {address}", no_wrap=True) for name, address in address_by_name.items()]
    return Shown(dataclasses.asdict(found), [table, *addresses])


@contextmanager
def _show_progress() -> "Iterator[Progress]":
    """Show on standard error what is being started, and a line for each step that is done."""
    started: dict[str, float] = {}
    with standard_error.status("looking at what runs") as line:

        def progress(name: str, state: str) -> None:
            if state == "starting":
                started[name] = time.monotonic()
            elif state != "ready":
                standard_error.print(state, markup=False, soft_wrap=True, style="yellow")
            else:
                seconds = time.monotonic() - started.pop(name)
                standard_error.print(f"[green]ready[/] {name} [dim]{seconds:.1f} s[/]")
            line.update(f"starting {', '.join(started)}")

        yield progress
