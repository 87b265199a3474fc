"""The assets of a pipeline by a glance at its file, which proves nothing: a DAG file has to be read in milliseconds.

Whatever is wrong with a file, the task that plans reads it, and says so.
"""

from pathlib import Path

import yaml

from batchledger.config.documents import DEEPEST, LARGEST_BYTES
from batchledger.config.places import pipelines_folder
from batchledger.sinks.aliases import name_target, name_topic

# The one that libyaml brings is ten times as fast, and not everywhere.
_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def find_aliases(name: str) -> tuple[str | None, list[str]]:
    """Return the alias of the target and of each topic that is read; none of them if the file does not have them."""
    try:
        content = yaml.load(_read(pipelines_folder() / f"{name}.yaml"), _Loader)  # noqa: S506 -- a safe one
        source, target = content["source"], name_target(content["sink"])
        return target, [name_topic({**source, "topic": topic}) for topic in source["topics"]]
    except (OSError, yaml.YAMLError, AttributeError, KeyError, RecursionError, TypeError, ValueError):
        return None, []


def _read(path: Path) -> bytes:
    """Return what the file holds; nothing if it is too large, or so deep that libyaml would end the process."""
    with path.open("rb") as stream:
        content = stream.read(LARGEST_BYTES + 1)
    if len(content) > LARGEST_BYTES:
        return b""
    levels = 0
    for event in yaml.parse(content, _Loader):
        levels += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if levels > DEEPEST:
            return b""
    return content
