"""Pipelines that a DAG file writes in Python, by the models of the pipeline file, and the files that they become.

The file stays what the page, commands, the audit and Spark jobs read: none of them runs a DAG file. So a pipeline in
Python works only if its file says the same. What a file cannot say is refused, and never lost.
"""

import difflib
import shlex
from collections.abc import Iterator
from itertools import islice
from typing import Any

import yaml
from typing_extensions import override

from batchledger.config.documents import LARGEST_BYTES, parse_yaml
from batchledger.config.pipeline_file import PipelineConfig, read_pipeline_file
from batchledger.config.places import PIPELINES_VARIABLE
from batchledger.model.errors import ConfigurationError

_MOST_LINES = 20
_TEXT = "tag:yaml.org,2002:str"


class Pipeline(PipelineConfig):
    """A pipeline of a DAG file: its name, and the keys of a pipeline file.

    A section is one of the models, or a mapping with the keys of the file. Modules and suites of checks lie in the
    folder of the pipeline files. ``batchledger export`` writes its file.
    """

    def __init__(self, name: str, **keys: Any) -> None:
        super().__init__(name=name, **keys)


def write_keys(pipeline: PipelineConfig) -> str:
    """Return the text of a file that says the same, without the keys that are as usual. Raises ConfigurationError."""
    try:
        keys = pipeline.model_dump(mode="json", by_alias=True, exclude_defaults=True)
        for entry, written in zip(pipeline.checks, keys.get("checks", ()), strict=True):
            # YAML has dates, and JSON has none.
            written.update(entry.arguments)
        text = yaml.dump(keys, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=LARGEST_BYTES)
        _require_kept(pipeline, text)
    except (RecursionError, TypeError, ValueError, yaml.YAMLError) as error:
        raise ConfigurationError(
            f"Pipeline {pipeline.name!r} holds something that a pipeline file cannot say.",
            # YAML's own error quotes the value.
            why=str(error.args[0] if isinstance(error, yaml.YAMLError) else error),
            advice="Write texts, numbers, dates, lists and mappings with keys of text.",
            pipeline=pipeline.name,
        ) from None
    return text


def _require_kept(pipeline: PipelineConfig, text: str) -> None:
    """Read what was written as its readers do. Raises ValueError unless it says the same."""
    if len(text.encode()) > LARGEST_BYTES:
        raise ValueError(f"It would have more than {LARGEST_BYTES // 1024} KiB.")
    found = PipelineConfig.model_validate(parse_yaml(text).content, context={"folder": pipeline.folder})
    lost = [key for key, value in pipeline if value != getattr(found, key)]
    if lost:
        raise ValueError(f"A file would have another value in {', '.join(lost)}.")


def export_file(pipeline: Pipeline, dag_file: str) -> None:
    """Write the file of a pipeline of a DAG file, and say so in its head. Raises ConfigurationError."""
    name = "".join(each if each.isprintable() else "?" for each in dag_file)
    head = f"# `batchledger export {name}` has made this file of a Pipeline(…) in that DAG file. Change it there.\n"
    write_file(pipeline, head)


def write_file(pipeline: PipelineConfig, head: str) -> None:
    """Write the file of a pipeline in one step: Airflow may be reading the folder. Raises ConfigurationError."""
    text, path = write_keys(pipeline), pipeline.file
    draft = path.with_name(f".{path.name}.draft")
    try:
        draft.write_text(f"{head}{text}", encoding="utf-8")
        draft.replace(path)
    except OSError as error:
        raise ConfigurationError(
            f"{path} cannot be written: {error.strerror}.",
            advice=f"Make the folder, or use another one: set {PIPELINES_VARIABLE}",
            subject=str(path),
        ) from None


def find_file(pipeline: Pipeline) -> PipelineConfig | None:
    """Return what the file of a pipeline says; None if there is none. Raises FileRefusedError."""
    return read_pipeline_file(pipeline.file) if pipeline.file.exists() else None


def says_the_same(pipeline: PipelineConfig, found: PipelineConfig) -> bool:
    """Return whether all keys have the same values, whatever is written and whatever is left out."""
    # As JSON: to Python, true is 1.
    return pipeline.model_dump_json() == found.model_dump_json()


def list_differences(pipeline: Pipeline, found: PipelineConfig) -> Iterator[str]:
    """Yield lines of a diff, from the file to the pipeline; the first of them, and how many there are more."""
    before, after = (write_keys(each).splitlines() for each in (found, pipeline))
    lines = iter([*difflib.unified_diff(before, after, n=1, lineterm="")][2:])
    yield from islice(lines, _MOST_LINES)
    rest = len([*lines])
    if rest:
        yield f"and {rest:,} lines more"


def load_file(pipeline: Pipeline, dag_file: str) -> PipelineConfig:
    """Return what the file of a pipeline says, if it says the same. Raises ConfigurationError."""
    found = find_file(pipeline)
    if found is not None and says_the_same(pipeline, found):
        return found
    if found is None:
        how, option, differences = "has no file", "", ""
    else:
        how, option = "says something else than its file", " --replace"
        differences = "\n".join(["", *list_differences(pipeline, found)])
    raise ConfigurationError(
        f"Pipeline {pipeline.name!r} of {dag_file} {how}. Nothing was done.",
        why=f"The page, commands and jobs read {pipeline.file}, and never a DAG file.{differences}",
        advice=f"Write the file: batchledger export {shlex.quote(dag_file)}{option}",
        pipeline=pipeline.name,
        subject=str(pipeline.file),
    )


class _Dumper(yaml.SafeDumper):
    """Writes each value where it stands, and a text of several lines as such."""

    @override
    def ignore_aliases(self, data: Any) -> bool:
        return True


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    # YAML reads these as ends of lines, too, unless they are escaped.
    style = '"' if set("\x85\u2028\u2029").intersection(text) else "|" if "\n" in text else None
    return dumper.represent_scalar(_TEXT, text, style=style)


_Dumper.add_representer(str, _represent_text)
