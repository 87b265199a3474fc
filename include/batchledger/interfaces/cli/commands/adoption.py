"""``batchledger adopt-target``: adopt the restored target of one pipeline, or of all pipelines of the folder."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from batchledger.interfaces.cli.command_line import AsJson, load_pipeline
from batchledger.interfaces.cli.commands.decisions import DryRun, Reason, give
from batchledger.interfaces.cli.display.decisions import describe_decided
from batchledger.interfaces.cli.printing import Shown, print_error, show, standard_error
from batchledger.lifecycle.orders import AdoptTarget
from batchledger.model.batch import Decided, DecisionKind
from batchledger.model.errors import BatchledgerError

if TYPE_CHECKING:
    from batchledger.config.pipeline_file import PipelineConfig


def adopt_target(
    pipeline: Annotated[str | None, typer.Argument(help="The name of a pipeline file.")] = None,
    *,
    reason: Reason,
    every: Annotated[bool, typer.Option("--all", help="Every pipeline of the folder, one after the other.")] = False,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Go on with a target that was restored from a backup or moved. `verify` has to hold against it.

    With --all it adopts every target that it can.
    It prints an error for each of the others.
    """
    if every == (pipeline is not None):
        raise typer.BadParameter("name one pipeline, or --all")
    if pipeline is not None:
        decided = _adopt(load_pipeline(pipeline), reason, dry_run)
        show(describe_decided(pipeline, DecisionKind.ADOPT_TARGET, decided, dry_run=dry_run), as_json)
        return
    errors: list[BatchledgerError] = []
    show(_adopt_all(reason, dry_run, errors), as_json)
    if errors:
        raise typer.Exit(max(each.exit_code for each in errors))


def _adopt_all(reason: str, dry_run: bool, errors: list[BatchledgerError]) -> Iterator[Shown]:
    """Adopt every target that can be adopted, and add to ``errors`` why the others cannot."""
    from batchledger.config.pipeline_file import find_pipeline_files, read_pipeline_file

    for path in find_pipeline_files():
        try:
            config = read_pipeline_file(path)
            decided = _adopt(config, reason, dry_run)
        except BatchledgerError as error:
            errors.append(error)
            standard_error.print(f"The target of {path.stem} was not adopted.", markup=False, highlight=False)
            print_error(error)
            yield Shown({"pipeline": path.stem, "kind": DecisionKind.ADOPT_TARGET, "error": str(error)})
        else:
            yield describe_decided(config.name, DecisionKind.ADOPT_TARGET, decided, dry_run=dry_run)


def _adopt(config: "PipelineConfig", reason: str, dry_run: bool) -> Decided:
    from batchledger.wiring import build_platform

    if config.name not in build_platform(config).ledger.list_targets():
        # A pipeline that has published nothing takes its first target without a decision.
        return Decided(None, is_new=False)
    return give(config, AdoptTarget(), reason, dry_run=dry_run)
