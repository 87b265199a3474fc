"""``batchledger check``: are pipeline files right? Needs no service, and opens none."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from batchledger.interfaces.cli.printing import Shown, number
from batchledger.model.errors import ConfigurationError, FileRefusedError


def check(
    files: Annotated[
        list[Path] | None,
        typer.Argument(metavar="FILE", help="Pipeline files, or folders of them; otherwise all of the folder."),
    ] = None,
    *,
    schema: Annotated[bool, typer.Option("--schema", help="Print the JSON Schema of a pipeline file instead.")] = False,
    watch: Annotated[bool, typer.Option("--watch", help="With --schema: of a watch's file.")] = False,
) -> Shown:
    """Check pipeline files as every command and DAG reads them, without any service.

    Each mistake is a line: file, line, column, and what to write instead.
    An extra that is missing here is a note: the file is right.
    Exit code 2 if a file is refused.
    """
    if watch and not schema:
        raise typer.BadParameter("--watch belongs to --schema: files are checked whatever they are")
    if schema:
        if files:
            raise typer.BadParameter("--schema takes no FILE: there is one schema for all files")
        from batchledger.config.json_schema import make_schema
        from batchledger.config.watch_file import WatchConfig

        made = make_schema(WatchConfig, "watch file") if watch else make_schema()
        return Shown(made, [Text(json.dumps(made, indent=2), no_wrap=True)])
    looks = [_look(path) for path in dict.fromkeys(_list_files(files))]
    refused = [each for each in looks if each["mistakes"]]
    lines = [line for each in looks for line in (*_write_mistakes(each), *each["notes"])]
    if refused:
        mistakes = sum(len(each["mistakes"]) for each in refused)
        lines.append(f"{number(len(refused))} of {_count(len(looks), 'file')} refused: {_count(mistakes, 'mistake')}.")
        lines += dict.fromkeys(each["do"] for each in refused)
    else:
        lines.append(f"{_count(len(looks), 'file')} checked: no mistake.")
    return Shown(looks, [Text(each, no_wrap=True) for each in lines], ConfigurationError.exit_code if refused else 0)


def _list_files(named: Iterable[Path] | None) -> Iterator[Path]:
    from batchledger.config.pipeline_file import find_files
    from batchledger.config.places import PIPELINES_VARIABLE, pipelines_folder

    for each in named or [pipelines_folder()]:
        if named and not each.is_dir():
            yield each
        elif found := find_files(each):
            yield from found
        else:
            raise ConfigurationError(
                f"There is no pipeline file in {each}.",
                why="The name of a pipeline file ends in .yaml." if each.is_dir() else "There is no such folder.",
                advice=f"Name files or folders: batchledger check FILE\nUse another folder: set {PIPELINES_VARIABLE}",
                subject=str(each),
            )


def _look(path: Path) -> dict[str, Any]:
    """Return what is to be said about a file, as a document."""
    from batchledger.config.pipeline_file import is_watch_file, read_pipeline_file
    from batchledger.config.watch_file import read_watch_file

    look: dict[str, Any] = {"file": str(path), "mistakes": [], "notes": [], "do": ""}
    try:
        (read_watch_file if is_watch_file(path) else read_pipeline_file)(path)
    except FileRefusedError as error:
        look |= {"file": error.subject, "mistakes": list(map(asdict, error.faults)), "do": error.advice}
    except ConfigurationError as missing:
        look["notes"].append(" ".join(f"{missing.message} {missing.advice}".split()))
    return look


def _write_mistakes(look: dict[str, Any]) -> Iterator[str]:
    for each in look["mistakes"]:
        yield f"{look['file']}:{each['line']}:{each['column']}: {each['text']}"


def _count(count: int, noun: str) -> str:
    return f"{number(count)} {noun}{'' if count == 1 else 's'}"
