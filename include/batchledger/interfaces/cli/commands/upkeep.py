"""``batchledger audit`` and ``batchledger housekeeping``: what the two DAGs do, from the command line."""

from typing import Annotated

import typer

from batchledger.interfaces.cli.command_line import AsJson, load_pipeline
from batchledger.interfaces.cli.display.alerts import describe_failures
from batchledger.interfaces.cli.display.upkeep import describe_audit, describe_housekeeping
from batchledger.interfaces.cli.printing import show
from batchledger.model.errors import BatchledgerError
from batchledger.monitoring.ledger_audit import LedgerAudit

Pipeline = Annotated[
    str | None, typer.Argument(metavar="[PIPELINE]", help="The name of a pipeline file, without .yaml; without it all.")
]
Newest = Annotated[
    int | None,
    typer.Option(
        min=0,
        help="Prove what the newest so many batches have published; 0 proves the whole history.",
        show_default="as the file says",
    ),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only say what would be removed.")]


def audit(pipeline: Pipeline = None, newest: Newest = None, as_json: AsJson = False) -> None:
    """Prove the ledger and the target, look for what is stuck or left behind; store what was found, and send alerts.

    Exit code 1 when something is wrong or could not be judged, 3 when everything that was found waits for a person.
    """
    from batchledger.config.pipeline_file import find_pipeline_files
    from batchledger.interfaces.upkeep import audit_and_tell

    audits: list[LedgerAudit] = []
    failures: dict[str, BatchledgerError] = {}
    for name in [pipeline] if pipeline else [path.stem for path in find_pipeline_files()]:
        try:
            audits.append(audit_and_tell(load_pipeline(name), newest))
        except BatchledgerError as error:
            if pipeline:
                raise
            failures[name] = error
    show([*map(describe_audit, audits), *describe_failures(failures, "audited")], as_json)
    codes = {each.exit_code for each in audits} | {1 for _ in failures}
    raise typer.Exit(next((code for code in (1, 3) if code in codes), 0))


def housekeeping(dry_run: DryRun = False, as_json: AsJson = False) -> None:
    """Remove staging of attempts that are over, expired message keys and quarantine, and old validations and audits.

    Never what an open batch needs, and a bounded number at a time: it is safe beside runs, and what is left the next
    one takes. Of Iceberg tables also branches of such attempts and old states; small files are written together.
    """
    from batchledger.interfaces.upkeep import keep_house

    show([describe_housekeeping(each, dry_run) for each in keep_house(is_dry_run=dry_run)], as_json)
