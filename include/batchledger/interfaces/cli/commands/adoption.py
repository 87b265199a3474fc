"""Adopting targets that were restored, on the command line: one pipeline's, or all pipelines' of the folder."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from batchledger.interfaces.cli.command_line import AsJson, find_pipeline_files, load_pipeline, read_pipeline_file
from batchledger.interfaces.cli.commands.decisions import DryRun, Reason, give
from batchledger.interfaces.cli.display.decisions import decided_as_json, show_decided
from batchledger.interfaces.cli.printing import print_json, standard_error
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
    """Go on with a target that was restored from a backup or moved, once `verify` holds against it.

    With --all it adopts every target that it can, and names the others at the end.
    """
    if every == (pipeline is not None):
        raise typer.BadParameter("name one pipeline, or --all")
    if pipeline is not None:
        decided = _adopt(load_pipeline(pipeline), reason, dry_run)
        show_decided(pipeline, DecisionKind.ADOPT_TARGET, decided, dry_run=dry_run, as_json=as_json)
        return
    code = _adopt_all(reason, dry_run, as_json)
    if code:
        raise typer.Exit(code)


def _adopt_all(reason: str, dry_run: bool, as_json: bool) -> int:
    """Adopt every target that can be adopted; return the exit code."""
    kind, shown, errors = DecisionKind.ADOPT_TARGET, list[dict[str, Any]](), list[BatchledgerError]()
    for path in find_pipeline_files():
        try:
            config = read_pipeline_file(path)
            decided = _adopt(config, reason, dry_run)
        except BatchledgerError as error:
            errors.append(error)
            shown.append({"pipeline": path.stem, "kind": kind, "error": str(error)})
            standard_error.print(f"{path.stem}: {error}", markup=False, highlight=False, soft_wrap=True)
            continue
        shown.append(decided_as_json(config.name, kind, decided, dry_run=dry_run))
        if not as_json:
            show_decided(config.name, kind, decided, dry_run=dry_run, as_json=False)
    if as_json:
        print_json(shown)
    return max((each.exit_code for each in errors), default=0)


def _adopt(config: "PipelineConfig", reason: str, dry_run: bool) -> Decided:
    from batchledger.wiring import build_platform

    if config.name not in build_platform(config).ledger.list_targets():
        # A pipeline that has published nothing takes its first target without being asked.
        return Decided(None, is_new=False)
    return give(config, AdoptTarget(), reason, dry_run=dry_run)
