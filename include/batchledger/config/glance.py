"""The assets of a pipeline by a glance at its file, which proves nothing: a DAG file has to be read in milliseconds.

Whatever is wrong with a file, the task that plans reads it, and says so.
"""

from pathlib import Path
from typing import Any

import yaml

from batchledger.config.documents import DEEPEST, LARGEST_BYTES, read_yaml
from batchledger.config.places import pipelines_folder
from batchledger.sinks.aliases import CONNECTION, name_target, name_topic

# The one that libyaml brings is ten times as fast, and not everywhere.
_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def find_aliases(name: str) -> tuple[str | None, list[str]]:
    """Return the alias of the target and of each topic that is read; none of them if the file does not have them."""
    path = pipelines_folder() / f"{name}.yaml"
    try:
        content = _read(path)
        source, target = content["source"], name_target(content["sink"])
        return target, [name_topic({**source, "topic": topic}) for topic in source["topics"]]
    except (OSError, yaml.YAMLError, AttributeError, KeyError, RecursionError, TypeError, ValueError):
        return None, []


def find_connection(name: str) -> str:
    """Return the connection that a pipeline reads from; the default one if its file does not say it."""
    _, sources = find_aliases(name)
    return sources[0].partition("/")[0] if sources else CONNECTION


def _read(path: Path) -> Any:
    """Return what the file holds. Raises ValueError if it is too large, or so deep that libyaml would end the process.

    With an alias of YAML, whose content may grow without end, the file is read as everywhere else.
    """
    with path.open("rb") as stream:
        content = stream.read(LARGEST_BYTES + 1)
    if len(content) > LARGEST_BYTES:
        raise ValueError("too large")
    levels = 0
    for event in yaml.parse(content, _Loader):
        if isinstance(event, yaml.AliasEvent):
            return read_yaml(path).content
        levels += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if levels > DEEPEST:
            raise ValueError("too deep")
    return yaml.load(content, _Loader)  # noqa: S506 -- a safe one
