"""The keys of files, from their JSON Schemas: the directive ``keys``, and the schemas as files of the site."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from docutils import nodes
from docutils.statemachine import StringList
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from batchledger.config.json_schema import make_schema
from batchledger.config.pipeline_file import PipelineConfig
from batchledger.config.watch_file import WatchConfig

MODELS = {"pipeline": PipelineConfig, "watch": WatchConfig}
Row = tuple[str, str, str]


class KeysDirective(SphinxDirective):
    """A table of the named keys; a section, or ``sink.TYPE``, stands for all of its keys, ``watch:`` for another file.

    Each line of the content adds a text to what a key means: ``schedule: [Schedules](../guides/backlog.md)``.
    """

    required_arguments = 1
    final_argument_whitespace = True
    has_content = True

    def run(self) -> list[nodes.Node]:
        """Return the table."""
        more = dict(line.split(": ", 1) for line in self.content if line)
        parent = nodes.Element()
        lines = StringList(list(write_keys(self.arguments[0].split(), more)), source=__file__)
        self.state.nested_parse(lines, self.content_offset, parent)
        return parent.children


def write_keys(named: Sequence[str], more: Mapping[str, str]) -> Iterator[str]:
    """Yield the table as lines of Markdown. Raises KeyError for a key that does not exist."""
    rows = [row for each in named for row in list_rows(each)]
    if unknown := set(more) - {key for key, _, _ in rows}:
        raise KeyError(*unknown)
    yield from ("| key | default | meaning |", "|---|---|---|")
    for key, default, meaning in rows:
        text = " ".join(filter(None, [meaning, more.get(key)])).replace("|", "\\|")
        yield f"| `{key}` | {default} | {text} |"


def list_rows(name: str) -> Iterator[Row]:
    """Yield key, default and meaning of a key of the file, and of the keys below it."""
    file, _, name = name.rpartition(":")
    schema = _make(file or "pipeline")
    section, dot, type_ = name.partition(".")
    if not dot:
        yield from _describe(schema, name, "")
        return
    kinds = [_resolve(each) for each in schema["properties"][section]["oneOf"]]
    kind = next(each for each in kinds if each["properties"]["type"]["const"] == type_)
    for key in kind["properties"]:
        yield from _describe(kind, key, f"{section}.")


def _describe(section: Mapping[str, Any], key: str, prefix: str) -> Iterator[Row]:
    about = section["properties"][key]
    value = next((_resolve(each) for each in about.get("anyOf", [about]) if each != {"type": "null"}), about)
    default = about.get("default")
    written = str(default).lower() if isinstance(default, bool) else default
    usual = "*required*" if key in section.get("required", ()) else "*none*" if default is None else f"`{written}`"
    yield f"{prefix}{key}", usual, _add_values(about["description"], value)
    if "$ref" in value and "properties" in value:
        for each in value["properties"]:
            yield from _describe(value, each, f"{prefix}{key}.")


def _add_values(meaning: str, value: Mapping[str, Any]) -> str:
    """Return what a key means, with the values that it may have, unless the text names all of them."""
    values = [value["const"]] if "const" in value else [*value.get("enum", value.get("items", {}).get("enum", ()))]
    listed = [f"`{each}`" for each in values]
    return meaning if all(each in meaning for each in listed) else f"{meaning} Allowed: {', '.join(listed)}."


def _resolve(about: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what a reference means, with the definitions of its items, too."""
    found: Mapping[str, Any] = {**about, **_look_up(about)}
    return {**found, "items": {**_look_up(found["items"])}} if "items" in found else found


def _look_up(about: Mapping[str, Any]) -> Mapping[str, Any]:
    name = re.sub(r"^#/\$defs/", "", about.get("$ref", ""))
    return {**_make("watch")["$defs"], **_make("pipeline")["$defs"]}[name] if name else {}


@cache
def _make(file: str) -> Mapping[str, Any]:
    return make_schema(MODELS[file], f"{file} file")


def _write_schema(app: Sphinx, exception: Exception | None) -> None:
    if exception is None:
        for file in MODELS:
            path = Path(app.outdir, "schema", f"{file}.json")
            path.parent.mkdir(exist_ok=True)
            path.write_text(json.dumps(_make(file), indent=2) + "\n", encoding="utf-8")


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directive, and write the schema when the site is built."""
    app.add_directive("keys", KeysDirective)
    app.connect("build-finished", _write_schema)
    return {"parallel_read_safe": True}
