"""``batchledger grant``: the rights in PostgreSQL that the runs of a pipeline, or of all, need."""

from typing import Annotated

import typer
from rich.text import Text

from batchledger.interfaces.cli.command_line import Name, OwnersLogin, find_ledger_named, load_pipeline
from batchledger.interfaces.cli.printing import Shown

Role = Annotated[str, typer.Option("--role", metavar="ROLE", help="A role of PostgreSQL that is there already.")]
Apply = Annotated[
    bool,
    typer.Option("--apply", help="Execute the statements. The owner of the ledger may."),
]
_OF_TARGETS = (
    "-- Still needed for targets: to own each table, or for a table that a run is to make: "
    "grant create on schema SCHEMA to {};"
)
All = Annotated[
    bool, typer.Option("--all", help="Let the role run all pipelines of this pipeline's ledger. Targets are not named.")
]


def grant(
    pipeline: Name,
    *,
    role: Role,
    is_all: All = False,
    is_applied: Apply = False,
    login: OwnersLogin = None,
) -> Shown:
    """Print what a role needs to run a pipeline or a watch, and to see no other one; execute it with --apply."""
    from batchledger.config.pipeline_file import is_watch
    from batchledger.ledger.grants import grant_all, grant_role

    dsn = find_ledger_named(pipeline, login)
    if is_all:
        granted, statements = None, grant_all(dsn, role, is_applied=is_applied)
    else:
        target = None if is_watch(pipeline) else load_pipeline(pipeline).sink.ledger_table
        granted, statements = pipeline, grant_role(dsn, pipeline, role, target, is_applied=is_applied)
    document = {"pipeline": granted, "role": role, "applied": is_applied, "statements": statements}
    # A comment of SQL, so that the output stays what psql can execute.
    done = f"-- Granted to {role}." if is_applied else "-- Nothing was executed. To execute it: repeat with --apply."
    lines = [*(f"{each};" for each in statements), *([_OF_TARGETS.format(role)] if is_all else []), done]
    parts = [Text(line, no_wrap=True) for line in lines]
    return Shown(document, parts)
