"""``batchledger export``: the pipelines that DAG files write in Python become pipeline files. Needs no service."""

import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from batchledger.interfaces.cli.printing import Shown
from batchledger.model.errors import ConfigurationError, FileRefusedError

if TYPE_CHECKING:
    from batchledger.config.python_pipelines import Pipeline


def export(
    files: Annotated[list[Path], typer.Argument(metavar="FILE", help="DAG files that write pipelines in Python.")],
    *,
    check: Annotated[bool, typer.Option("--check", help="Write nothing, and say what is not exported.")] = False,
    replace: Annotated[
        bool, typer.Option("--replace", help="Also replace files of pipelines that say something else.")
    ] = False,
) -> Shown:
    """Write the pipelines that DAG files have in Python as pipeline files, into the folder of these.

    The DAG files are imported. The page, commands and Spark jobs read
    pipeline files alone, and a task refuses a pipeline whose file is
    missing or says something else. Exit code 2 if a file says something
    else and stays, and with --check also if one is missing.
    """
    if check and replace:
        raise typer.BadParameter("--check writes nothing, so it does not go with --replace")
    found = _find_all(files)
    looks = [_settle(pipeline, path, check=check, replace=replace) for pipeline, path in found]
    lines = [line for each in looks for line in _describe(each)]
    left = [each for each in looks if each["outcome"] in ("differs", "missing")]
    if left:
        option = " --replace" if any(each["outcome"] == "differs" for each in left) else ""
        named = shlex.join(dict.fromkeys(each["dag_file"] for each in left))
        lines.append(f"To write them: batchledger export {named}{option}")
    return Shown(looks, [Text(each, no_wrap=True) for each in lines], ConfigurationError.exit_code if left else 0)


def _find_all(files: Sequence[Path]) -> "list[tuple[Pipeline, Path]]":
    """Return each pipeline once, with its DAG file, by their names. Raises ConfigurationError."""
    from batchledger.config.python_pipelines import says_the_same

    found: dict[str, tuple[Pipeline, Path]] = {}
    for path in files:
        for each in _import_pipelines(path):
            first, where = found.setdefault(each.name, (each, path))
            if not says_the_same(first, each):
                raise ConfigurationError(
                    f"Pipeline {each.name!r} of {path} is there twice, and says something else in {where}.",
                    advice="Write it once, and import it where else it is needed.",
                    pipeline=each.name,
                    subject=str(path),
                )
    if not found:
        raise ConfigurationError(
            f"There is no pipeline in {', '.join(map(str, files))}.",
            why="A pipeline is a Pipeline(…) of batchledger.airflow, at the top of the file or in a task of its DAGs.",
            advice="Name DAG files: batchledger export dags/nightly.py",
        )
    return [found[name] for name in sorted(found)]


def _import_pipelines(path: Path) -> "Iterator[Pipeline]":
    """Import a DAG file as Airflow does; yield the pipelines at its top, then the ones of tasks of its DAGs."""
    with redirect_stdout(sys.stderr):
        from airflow.dag_processing.dagbag import DagBag

        from batchledger.config.python_pipelines import Pipeline

        file = str(path.resolve())
        sys.path.insert(0, str(path.resolve().parent))
        bag = DagBag(collect_dags=False)
        bag.process_file(file, only_if_updated=False, safe_mode=False)  # type: ignore[no-untyped-call]
    if bag.import_errors or not path.is_file():
        told = "".join(bag.import_errors.values()).strip() or "There is no such file."
        raise ConfigurationError(
            f"{path} cannot be imported. Nothing was written.",
            why=told,
            advice=f"Correct the file, and see what it says: python {shlex.quote(str(path))}",
            subject=str(path),
        )
    modules = [each for each in sys.modules.values() if getattr(each, "__file__", None) == file]
    tops = [value for each in modules for value in vars(each).values()]
    tasks = [getattr(task, "pipeline", None) for dag in bag.dags.values() for task in dag.tasks]
    yield from (each for each in (*tops, *tasks) if isinstance(each, Pipeline))


def _settle(pipeline: "Pipeline", dag_file: Path, *, check: bool, replace: bool) -> dict[str, Any]:
    """Write the file if it is due; return what became of it, as a document."""
    from batchledger.config.python_pipelines import export_file, find_file, list_differences, says_the_same
    from batchledger.config.refusals import write_path

    look: dict[str, Any] = {"pipeline": pipeline.name, "file": str(pipeline.file), "dag_file": write_path(dag_file)}
    try:
        found = find_file(pipeline)
        if found is not None and says_the_same(pipeline, found):
            return look | {"outcome": "same", "differences": []}
        differences = [] if found is None else [*list_differences(pipeline, found)]
    except FileRefusedError as refused:
        differences = [refused.message]
    is_there = pipeline.file.exists()
    if check or (is_there and not replace):
        return look | {"outcome": "differs" if is_there else "missing", "differences": differences}
    export_file(pipeline, dag_file.name)
    return look | {"outcome": "replaced" if is_there else "written", "differences": differences}


def _describe(look: Mapping[str, Any]) -> Iterator[str]:
    said = {"same": "says the same", "differs": "says something else, and stays as it is"}
    yield f"{look['pipeline']}: {look['file']} {said.get(look['outcome'], 'is ' + look['outcome'])}"
    yield from (f"    {each}" for each in look["differences"])
