"""Files that people write, YAML and JSON: each is read at a bounded cost, and only inside of its folder.

A file has at most ``LARGEST_BYTES``, also with every alias of YAML written out, and ``DEEPEST`` levels. Keys are text
and come once. Tags are refused: nothing of a file makes another object than text, numbers, moments, lists and mappings.
Every fault is a ValueError with its line; none quotes other content of the file, which may be private. If the
system refuses a file, for example because there is none, the error is an OSError. Lines and columns count from 1.
"""

import ast
import json
import stat
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import yaml
from typing_extensions import override

LARGEST_BYTES = 256 * 1024
DEEPEST = 32
_LONGEST_NUMBER = 40
_LONGEST_KEY = 60
_TEXT, _MERGE = "tag:yaml.org,2002:str", "tag:yaml.org,2002:merge"


class DocumentError(ValueError):
    """A file cannot be read as what it should be: why, and where."""

    def __init__(self, problem: str, line: int = 1, column: int = 1) -> None:
        super().__init__(problem)
        self.line, self.column = line, column


@dataclass(frozen=True, slots=True)
class Document:
    """What a file of YAML holds, and where each part of it is written."""

    content: Any
    _root: yaml.Node | None = field(repr=False)

    def locate(self, place: Sequence[str | int]) -> tuple[int, int]:
        """Return line and column of a text or a number, of an item of a list, or of the key of anything larger.

        ``place`` leads there by keys and numbers. If it leads nowhere, what is around it is taken. Example: of
        ``{a: [x, {b: 1}]}`` the place ``a, 1, b`` is column 12, and ``a, 1, c`` is the item, column 8.
        """
        key, node = self._find(place)
        return _position(node.start_mark if isinstance(node, yaml.ScalarNode) else key)

    def locate_key(self, place: Sequence[str | int]) -> tuple[int, int]:
        """Return line and column of the key itself."""
        return _position(self._find(place)[0])

    def _find(self, place: Sequence[str | int]) -> tuple[yaml.Mark | None, yaml.Node | None]:
        node = self._root
        mark = None if node is None else node.start_mark
        for part in place:
            found = _find_child(node, part)
            if found is None:
                break
            mark, node = found
        return mark, node


def read_yaml(path: Path) -> Document:
    """Return what the file holds. Raises DocumentError."""
    return parse_yaml(read_text(path))


def parse_yaml(text: str) -> Document:
    """Return what a text of bounded length holds. Raises DocumentError."""
    try:
        loader = _BoundedLoader(text)
        root = loader.get_single_node()
        return Document(None if root is None else loader.construct_document(root), root)
    except yaml.MarkedYAMLError as error:
        raise DocumentError(_explain(error), *_position(error.problem_mark)) from None
    except yaml.reader.ReaderError as error:
        problem = f"a character that YAML does not allow, U+{int(error.character):04X}"
        raise DocumentError(problem, *_count(text[: error.position])) from None


def read_json(path: Path) -> Any:
    """Return what the file holds. Raises ValueError."""
    text = read_text(path)
    try:
        return json.loads(text, object_pairs_hook=_refuse_repeated)
    except json.JSONDecodeError as error:
        raise ValueError(f"line {error.lineno}, column {error.colno}: {error.msg}") from None
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def find_inside(folder: Path, name: object) -> Path:
    """Return the path of a file of the folder. Raises ValueError for one that lies elsewhere, also behind a link."""
    if isinstance(name, str) and "\0" not in name and (folder / name).resolve().is_relative_to(folder.resolve()):
        return folder / name
    raise ValueError("it has to lie in the folder of the pipeline file; write the name of a file there")


def read_module(folder: Path, name: str) -> str | None:
    """Return the text of a module of Python in the folder; None if it has no such file. Raises ValueError in words."""
    file = f"{name}.py"
    try:
        text = read_text(find_inside(folder, file))
        ast.parse(text)
    except FileNotFoundError:
        return None
    except SyntaxError as error:
        raise ValueError(f"{file} is not Python: line {error.lineno}") from None
    except (OSError, ValueError) as error:
        # The words of the system alone: the path is the file's own text.
        reason = error.strerror if isinstance(error, OSError) else error
        raise ValueError(f"{file} cannot be read: {reason}") from None
    except (RecursionError, MemoryError):
        raise ValueError(f"{file} cannot be read: it is nested too deeply") from None
    return text


def read_text(path: Path, largest_bytes: int = LARGEST_BYTES) -> str:
    """Return the text of the file. Raises DocumentError."""
    if not stat.S_ISREG(path.stat().st_mode):
        raise DocumentError("it is not a file")
    with path.open("rb") as stream:
        content = stream.read(largest_bytes + 1)
    if len(content) > largest_bytes:
        raise DocumentError(f"it has more than {largest_bytes // 1024} KiB")
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        line, column = _count(content[: error.start].decode("utf-8"))
        raise DocumentError(f"it is not text in UTF-8 from line {line} on", line, column) from None


class _BoundedLoader(yaml.SafeLoader):
    """Composes no node that is too deep or, with its aliases written out, too large; see the module."""

    def __init__(self, stream: str) -> None:
        super().__init__(stream)
        self._depth = 0
        # Size and height of each whole node; one that is still being composed is not in here.
        self._measures: dict[int, tuple[int, int]] = {}

    @override
    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        event = self.peek_event()  # type: ignore[no-untyped-call]
        is_alias = isinstance(event, yaml.AliasEvent)
        if getattr(event, "tag", None) not in (None, "!", _TEXT):
            raise _fault("a tag (!) is not allowed here", event.start_mark)
        if self._depth >= DEEPEST:
            raise _fault(f"more than {DEEPEST} levels", event.start_mark)
        self._depth += 1
        node = super().compose_node(parent, index)
        self._depth -= 1
        if node is None:
            return None
        if is_alias and id(node) not in self._measures:
            raise _fault("an alias stands inside of what it means", event.start_mark)
        size, height = self._measures[id(node)] if is_alias else self._measure(node)
        if size > LARGEST_BYTES or self._depth + height > DEEPEST:
            largest = f"more than {LARGEST_BYTES // 1024} KiB or {DEEPEST} levels"
            raise _fault(f"with its aliases written out it has {largest}", event.start_mark)
        return node

    @override
    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        """Compose a mapping. Refuses a key that comes twice, which YAML forbids: else the last one would win (S28)."""
        node = super().compose_mapping_node(anchor)
        seen = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode) or key.tag not in (_TEXT, _MERGE):
                raise _fault("a key is not text; put it in quotes", key.start_mark)
            if key.value in seen:
                raise _fault(f"key {key.value[:_LONGEST_KEY]!r} appears twice", key.start_mark)
            seen.add(key.value)
        return node

    def _measure(self, node: yaml.Node) -> tuple[int, int]:
        if isinstance(node, yaml.ScalarNode):
            measure = (1 + len(node.value), 0)
        else:
            pairs = node.value if isinstance(node, yaml.MappingNode) else ((each,) for each in node.value)
            parts = [self._measures[id(each)] for pair in pairs for each in pair]
            measure = (1 + sum(size for size, _ in parts), 1 + max((height for _, height in parts), default=0))
        self._measures[id(node)] = measure
        return measure


def _construct(construct: Callable[..., Any], kind: str, loader: yaml.SafeLoader, node: yaml.ScalarNode) -> Any:
    """Construct what looks like a number or a moment, and may be too long for Python, or not in the calendar."""
    try:
        if len(node.value) <= _LONGEST_NUMBER:
            return construct(loader, node)
    except (ValueError, OverflowError):
        pass
    raise _fault(f"what looks like {kind} is none that can be read; if it is text, put it in quotes", node.start_mark)


for _type, _kind in (("int", "a whole number"), ("float", "a number"), ("timestamp", "a date or a moment")):
    _usual = getattr(yaml.SafeLoader, f"construct_yaml_{_type}")
    _BoundedLoader.add_constructor(f"tag:yaml.org,2002:{_type}", partial(_construct, _usual, _kind))


def _fault(problem: str, mark: yaml.Mark) -> yaml.MarkedYAMLError:
    return yaml.MarkedYAMLError(problem=problem, problem_mark=mark)


def _explain(error: yaml.MarkedYAMLError) -> str:
    """Return the problem; the library would quote the line, and names of aliases and anchors at any length."""
    said = f"{error.context} {error.problem}"
    quoting = ("undefined alias", "duplicate anchor", "undefined tag handle")
    return next((kind for kind in quoting if kind in said), str(error.problem))


def _count(before: str) -> tuple[int, int]:
    """Return line and column of what follows a text."""
    return before.count("\n") + 1, len(before) - before.rfind("\n")


def _position(mark: yaml.Mark | None) -> tuple[int, int]:
    return (1, 1) if mark is None else (mark.line + 1, mark.column + 1)


def _find_child(node: yaml.Node | None, part: str | int) -> tuple[yaml.Mark, yaml.Node] | None:
    if isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
        item = node.value[part]
        return item.start_mark, item
    if isinstance(node, yaml.MappingNode):
        # What was merged (<<) stands before the mapping's own keys, which win.
        return next(((key.start_mark, value) for key, value in reversed(node.value) if key.value == part), None)
    return None


def _refuse_repeated(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise ValueError(f"key {name[:_LONGEST_KEY]!r} appears twice")
        found[name] = value
    return found
