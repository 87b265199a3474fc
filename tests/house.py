"""Measures what one person can hold of this project: ``make house``; ``make lint`` asks for what needs no services.

The bounds stand in pyproject.toml, ``tool.batchledger.house``, beside the goals that are not reached yet. What is
beyond its bound makes this fail. Lines are lines of Python.
"""
# ruff: noqa: T201 -- It reports to people.

import ast
import json
import os
import re
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
WORKSHOP = "local/"
SHARED_BY_SINKS = {"merging", "staging", "streaming"}
MEASURED_VARIABLE = "BATCHLEDGER_MEASURED"
"""Names the file into which ``tests/contract/test_light_commands.py`` writes what each command has taken."""


class Measure(NamedTuple):
    """How much of something there is, and where, if a place helps."""

    what: str
    value: float
    where: str = ""


class Bound(NamedTuple):
    """The most that there may be, and what it is to become."""

    bound: float
    goal: float | None = None


def count_lines(text: str) -> int:
    """Lines of a file, empty ones as well."""
    return len(text.splitlines())


def measure_files(root: Path) -> Iterator[Measure]:
    """Measure a checkout. Rooms are folders of the package, which is taken without the workshop.

    A module or a function of the workshop is as short as any other.
    """
    package = root / "include" / "batchledger"
    texts = {str(path.relative_to(package)): path.read_text(encoding="utf-8") for path in sorted(package.rglob("*.py"))}
    lines_of_all = {name: count_lines(text) for name, text in texts.items()}
    lines = {name: count for name, count in lines_of_all.items() if not name.startswith(WORKSHOP)}
    leading_in = _count_in(root, "dags", "spark_jobs", "plugins")
    yield Measure("lines of the product, without the workshop", sum(lines.values()) + leading_in)
    for room in ("", "interfaces/", "sinks/"):
        name, count = max(_count_rooms(lines, room).items(), key=lambda each: each[1])
        share = round(100 * count / sum(lines.values()), 1)
        yield Measure(f"percent of the package in the largest room{' of ' * bool(room)}{room.strip('/')}", share, name)
    yield Measure("lines of tests", _count_in(root, "tests"))
    name = max(lines_of_all, key=lambda each: lines_of_all[each])
    yield Measure("lines of the longest module", lines_of_all[name], name)
    trees = {name: ast.parse(text) for name, text in texts.items()}
    count, where = max(each for name, tree in trees.items() for each in _list_functions(name, tree))
    yield Measure("lines of the longest function", count, where)
    dependencies = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]["dependencies"]
    yield Measure("direct dependencies of the base install", len(dependencies))
    methods = _count_methods({name: tree for name, tree in trees.items() if name.startswith("ports/")})
    port = max(methods, key=lambda each: methods[each])
    yield Measure("methods of the largest port", methods[port], port)
    yield Measure("methods of all ports", sum(methods.values()))
    naming = list(find_modules_that_name_a_kind({name: texts[name] for name in lines}))
    yield Measure("modules that name a kind of sink outside of its folder", len(naming), ", ".join(naming))


def _count_in(root: Path, *folders: str) -> int:
    paths = [path for each in folders for path in (root / each).rglob("*.py")]
    return sum(count_lines(path.read_text(encoding="utf-8")) for path in paths)


def _count_rooms(lines: Mapping[str, int], room: str) -> Counter[str]:
    """The lines of each folder of a room."""
    found = Counter[str]()
    for name, count in lines.items():
        folder, slash, _ = name.removeprefix(room).partition("/")
        if slash and name.startswith(room):
            found[f"{room}{folder}"] += count
    return found


def _list_functions(module: str, tree: ast.Module) -> Iterator[tuple[int, str]]:
    """The lines of each function, with its signature and docstring."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield (node.end_lineno or node.lineno) - node.lineno + 1, f"{module}: {node.name}"


def _count_methods(trees: Mapping[str, ast.Module]) -> Mapping[str, int]:
    """How many methods each role has, with what it inherits from another role."""
    classes = {node.name: node for tree in trees.values() for node in tree.body if isinstance(node, ast.ClassDef)}
    bases = {name: [each.id for each in node.bases if isinstance(each, ast.Name)] for name, node in classes.items()}

    def count(name: str) -> int:
        own = sum(isinstance(each, ast.FunctionDef) for each in classes[name].body)
        return own + sum(count(base) for base in bases[name] if base in classes)

    return {name: count(name) for name in classes if "Protocol" in bases[name]}


def find_modules_that_name_a_kind(texts: Mapping[str, str]) -> Iterator[str]:
    """The modules that import from the folder of a kind of sink, or have ``"iceberg"`` as a text, and lie elsewhere.

    The other kinds are called as words of every room, "table" and "topic": only their imports are found.
    """
    folders = {name.split("/")[1] for name in texts if name.count("/") > 1 and name.startswith("sinks/")}
    kinds = "|".join(sorted(folders - SHARED_BY_SINKS))
    named = re.compile(rf"batchledger\.sinks(?:\.| import )(?P<kind>{kinds})\b|(['\"])iceberg\2")
    for name, text in texts.items():
        found = {each["kind"] or "iceberg" for each in named.finditer(text)}
        if any(not name.startswith(f"sinks/{each}/") for each in found):
            yield name


def measure_commands(root: Path) -> Iterator[Measure]:
    """Run the test of light commands, with its services, and tell what it has measured."""
    with TemporaryDirectory() as folder:
        measured = Path(folder) / "measured.json"
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:xdist", "tests/contract/test_light_commands.py"]
        done = subprocess.run(command, cwd=root, env={**os.environ, MEASURED_VARIABLE: str(measured)}, check=False)
        if done.returncode:
            sys.exit(done.returncode)
        found = json.loads(measured.read_text())
    yield Measure("packages that `status` imports", len(found["status"]["packages"]))
    yield Measure("seconds of CPU of `--help`", found["--help"]["cpu_seconds"])
    yield Measure("seconds of CPU of `status`", found["status"]["cpu_seconds"])


def read_bounds(root: Path) -> Mapping[str, Bound]:
    """Return each bound by what it bounds."""
    table = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["batchledger"]["house"]
    return {what: Bound(**each) for what, each in table.items()}


def list_beyond(measures: list[Measure], bounds: Mapping[str, Bound]) -> list[str]:
    """Return an error for each measure that is beyond its bound."""
    return [
        f"error: {what}: {value:,g} is more than {bounds[what].bound:,g}: {where or 'see CONTRIBUTING, Style, rule 12'}"
        for what, value, where in measures
        if value > bounds[what].bound
    ]


def show(measures: list[Measure], bounds: Mapping[str, Bound]) -> Iterator[str]:
    """Yield the lines of a table."""
    width = max(len(each.what) for each in measures)
    yield f"{'what':{width}}  measured   bound    goal  where"
    for what, value, where in measures:
        bound, goal = bounds[what]
        yield f"{what:{width}}  {value:8,g}  {bound:6,g}  {'' if goal is None else f'{goal:,g}':>6}  {where}".rstrip()


def main(root: Path, *, is_fast: bool) -> int:
    """Print the table, and return 1 if something is beyond its bound. If it is to be fast, print only what is."""
    bounds = read_bounds(root)
    measures = [*measure_files(root), *(() if is_fast else measure_commands(root))]
    beyond = list_beyond(measures, bounds)
    for line in [*(() if is_fast else show(measures, bounds)), *beyond]:
        print(line)
    return 1 if beyond else 0


if __name__ == "__main__":
    sys.exit(main(ROOT, is_fast="--fast" in sys.argv))
