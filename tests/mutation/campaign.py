"""Change the core, one expression at a time, and see that a unit test notices each change.

mutmut makes the changes, called mutants, and runs the tests. A mutant survives if every test passes nevertheless: then
a promise has no test, or the change makes no difference. A person judges which of the two, and lists the second kind
with its reason in ``equivalent.toml``. The campaign fails on a survivor that is not listed, and on an entry that is out
of date.
"""

import os
import shutil
import subprocess
import sys
import time
import tomllib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
EQUIVALENT = Path(__file__).with_name("equivalent.toml")
COUNTS = ROOT / "docs" / "testing" / "mutants.md"
UNDECIDED = ("check was interrupted by user", "suspicious", "segfault", "skipped")


@dataclass(frozen=True, order=True, slots=True)
class Change:
    """What a mutant changes: the lines that go and the lines that come, in one function, wherever they stand."""

    function: str
    was: str
    becomes: str

    def __str__(self) -> str:
        return f"{self.function}\n  - {self.was}\n  + {self.becomes}"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a campaign comes to. ``outdated`` are entries of the list whose mutant is gone, or is noticed by a test."""

    unexplained: tuple[Change, ...]
    outdated: tuple[Change, ...]
    undecided: tuple[str, ...]

    @property
    def is_good(self) -> bool:
        """Whether each mutant was noticed, or is listed as one that makes no difference."""
        return not (self.unexplained or self.outdated or self.undecided)


def function_of(mutant: str) -> str:
    """Return the function of a mutant, such as ``batchledger.planning.live.x_share_fairly``."""
    return mutant.rpartition("__mutmut_")[0]


def parse_results(text: str) -> dict[str, str]:
    """Return the status of each mutant, from what ``mutmut results`` prints."""
    lines = (line.strip().rpartition(": ") for line in text.splitlines() if "__mutmut_" in line)
    return {name: status for name, _, status in lines}


def parse_change(mutant: str, diff: str) -> Change:
    """Return what a mutant changes, from the diff that ``mutmut show`` prints."""
    body = [line for line in diff.splitlines() if not line.startswith(("---", "+++"))]
    was, becomes = (" ".join(line[1:].strip() for line in body if line.startswith(sign)) for sign in "-+")
    return Change(function_of(mutant), was, becomes)


def read_equivalent(path: Path) -> list[Change]:
    """Return the changes that are listed as making no difference; each has a reason for people."""
    entries = tomllib.loads(path.read_text()).get("equivalent", [])
    without = [entry["function"] for entry in entries if not entry.get("reason", "").strip()]
    if without:
        raise ValueError(f"no reason is given for {', '.join(without)} in {path}")
    return [Change(entry["function"], entry["was"], entry["becomes"]) for entry in entries]


def judge(statuses: Mapping[str, str], survivors: Iterable[Change], listed: Iterable[Change]) -> Verdict:
    """Compare the survivors with the list, as far as its functions were examined."""
    examined = {function_of(mutant) for mutant, status in statuses.items() if status != "not checked"}
    gone = set(listed) - set(survivors)
    existing = {function_of(mutant) for mutant in statuses}
    return Verdict(
        unexplained=tuple(sorted(set(survivors) - set(listed))),
        outdated=tuple(sorted(each for each in gone if each.function in examined or each.function not in existing)),
        undecided=tuple(sorted(name for name, status in statuses.items() if status in UNDECIDED)),
    )


def prepare(root: Path, workspace: Path) -> None:
    """Make the workspace anew: links to the code, the tests and the settings of ``root``.

    mutmut takes the module names of ``src`` only, so ``include`` gets this name here. Nothing of an earlier campaign is
    kept: mutmut would not notice that a test has changed.
    """
    shutil.rmtree(workspace, ignore_errors=True)
    workspace.mkdir(parents=True)
    for name, target in (("src", "include"), ("tests", "tests"), ("pyproject.toml", "pyproject.toml")):
        (workspace / name).symlink_to(root / target)


def run(workspace: Path, patterns: Sequence[str], workers: int) -> tuple[dict[str, str], list[Change]]:
    """Run the mutants that fit a pattern, or all; return the status of each, and what the survivors change."""
    call_mutmut(workspace, "run", "--max-children", str(workers), *patterns, shown=True)
    statuses = parse_results(call_mutmut(workspace, "results", "--all", "true"))
    survivors = [name for name, status in statuses.items() if status in ("survived", "no tests")]
    return statuses, [parse_change(name, call_mutmut(workspace, "show", name)) for name in survivors]


def call_mutmut(workspace: Path, *arguments: str, shown: bool = False) -> str:
    """Return what mutmut prints. Raises CalledProcessError, for example if the tests fail without any mutant."""
    command = [sys.executable, "-m", "mutmut", *arguments]
    done = subprocess.run(command, cwd=workspace, stdout=None if shown else subprocess.PIPE, text=True, check=True)
    return done.stdout or ""


def describe(statuses: Mapping[str, str]) -> str:
    """Return a table: a line for each module, with how many of its mutants met which end."""
    by_module: dict[str, Counter[str]] = {}
    for mutant, status in statuses.items():
        by_module.setdefault(mutant.rpartition(".")[0], Counter())[status] += 1
    lines = [(module, counts) for module, counts in sorted(by_module.items()) if set(counts) != {"not checked"}]
    lines.append(("all", sum((counts for _, counts in lines), Counter())))
    return "\n".join(
        f"{module:44} {counts.total():5} mutants: " + ", ".join(f"{n} {name}" for name, n in counts.most_common())
        for module, counts in lines
    )


def write_counts(statuses: Mapping[str, str], survivors: int, listed: int) -> str:
    """Return the table of the page that says what a whole campaign came to."""
    counts = Counter(statuses.values())
    noticed = counts["killed"] + counts["timeout"]
    rows = {
        "changes of the core": counts.total(),
        "noticed by a test": noticed,
        "listed as making no difference": listed,
        "unnoticed": survivors - listed,
    }
    return "| | |\n|---|--:|\n" + "".join(f"| {name} | {number:,} |\n" for name, number in rows.items())


def main(patterns: Sequence[str]) -> int:
    """Run the campaign; 0 if no survivor is unexplained, 1 otherwise."""
    workspace = ROOT / ".local" / "mutants"
    began = time.monotonic()
    prepare(ROOT, workspace)
    statuses, survivors = run(workspace, patterns, int(os.environ.get("WORKERS", "2")))
    listed = read_equivalent(EQUIVALENT)
    verdict = judge(statuses, survivors, listed)
    took = time.monotonic() - began
    if not patterns:
        COUNTS.write_text(write_counts(statuses, len(survivors), len(listed)), encoding="utf-8")
    sys.stdout.write(f"\n{describe(statuses)}\nin {took:,.0f} s; {len(listed)} are listed as equivalent\n")
    for heading, found in (
        ("No test notices this change, and tests/mutation/equivalent.toml does not list it:", verdict.unexplained),
        ("tests/mutation/equivalent.toml lists this change, and a test notices it, or it is gone:", verdict.outdated),
        ("It is unknown whether a test notices this mutant:", verdict.undecided),
    ):
        for each in found:
            sys.stdout.write(f"{heading} {each}\n")
    return 0 if verdict.is_good else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
