"""``batchledger grant``: the rights in PostgreSQL that the runs of one pipeline need."""

from typing import Annotated

import typer
from rich.text import Text

from batchledger.interfaces.cli.command_line import AsJson, Name, load_pipeline
from batchledger.interfaces.cli.printing import Shown, show

Role = Annotated[str, typer.Option("--role", metavar="ROLE", help="A role of PostgreSQL that is there already.")]
Apply = Annotated[
    bool, typer.Option("--apply", help="Execute the statements, as the user of the warehouse connection.")
]


def grant(pipeline: Name, *, role: Role, is_applied: Apply = False, as_json: AsJson = False) -> None:
    """Print what a role needs to run a pipeline, and to see no other one; execute it with --apply."""
    from batchledger.adapters.postgres.ledger.grants import grant_role
    from batchledger.config.sink_sections import PostgresSinkConfig
    from batchledger.wiring import ledger_dsn

    config = load_pipeline(pipeline)
    target = config.sink.qualified_table if isinstance(config.sink, PostgresSinkConfig) else None
    statements = grant_role(ledger_dsn(config), config.name, role, target, is_applied=is_applied)
    document = {"pipeline": config.name, "role": role, "applied": is_applied, "statements": statements}
    # A comment of SQL, so that the output stays what psql can execute.
    done = f"-- Granted to {role}." if is_applied else "-- Nothing was executed. To execute it: repeat with --apply."
    parts = [Text(line, no_wrap=True) for line in (*(f"{each};" for each in statements), done)]
    show(Shown(document, parts), as_json)
