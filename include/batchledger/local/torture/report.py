"""The outcome of a run for each mode: whether it kept its promise, and whether a weaker one showed what it allows.

The verdict is a pure function of two facts: what the checker found, and whether the pipelines could be drained.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich import box
from rich.table import Table

from batchledger.local.torture.campaign import RoundResult
from batchledger.local.torture.checker import Differences
from batchledger.local.torture.excuses import ALLOWED_BY_MODE
from batchledger.local.torture.records import WriteKind
from batchledger.local.torture.schedule import ANOMALY_FAULT

_IDS_SHOWN = 20
_KINDS = ("lost", "duplicated", "phantom", "out_of_order", "wrong_value", "broker_lost", "not_set_aside")


_ANOMALY = {None: "nothing", True: "seen", False: "not seen"}


@dataclass(frozen=True)
class ModeReport:
    """One mode. ``found`` counts record ids by kind of difference, ``examples`` names some of them.

    ``violations`` break the promise of the mode: kinds that it never allows, and kinds that it allows, but that no
    fault explains. ``doubts`` say why the run shows nothing. ``drain_errors`` are only shown.
    """

    mode: str
    rounds: int
    records: int
    rows: int
    batches: int
    survived: Mapping[str, int]
    missed: int
    found: Mapping[str, int]
    violations: Mapping[str, int]
    examples: Mapping[str, Sequence[str]]
    doubts: tuple[str, ...] = ()
    drain_errors: tuple[str, ...] = ()
    stuck: str | None = None

    @property
    def allowed(self) -> tuple[str, ...]:
        """The kinds of difference that are within the promise."""
        return ALLOWED_BY_MODE[self.mode]

    @property
    def keeps_promise(self) -> bool:
        """Whether the mode kept its promise, came to an end, and was put to the test."""
        return not self.violations and not self.doubts and self.stuck is None

    @property
    def anomaly_seen(self) -> bool | None:
        """Whether a weaker mode showed what it allows; None for the mode that allows nothing."""
        return any(self.found[kind] for kind in self.allowed) if self.allowed else None


@dataclass(frozen=True)
class TortureReport:
    """The whole run; ``surprises`` are endings of workers that no error of the family describes."""

    seed: int
    rounds: int
    seconds: float
    without: str | None
    modes: tuple[ModeReport, ...]
    surprises: tuple[str, ...]
    seconds_by_kind: Mapping[str, float]
    faults_struck: int

    @property
    def keeps_promises(self) -> bool:
        """Whether every mode kept its promise, planned faults did strike, and workers ended as expected."""
        return all(each.keeps_promise for each in self.modes) and not self.surprises and not self.is_unharmed

    @property
    def is_unharmed(self) -> bool:
        """Whether every single fault came too late, so that nothing was put to the test."""
        return self.faults_struck == 0 and any(each.missed for each in self.modes)

    def as_document(self) -> dict[str, Any]:
        """Return the report as a JSON document."""
        verdicts = [
            {
                "keeps_promise": each.keeps_promise,
                "allowed": each.allowed,
                "anomaly_seen": each.anomaly_seen,
            }
            for each in self.modes
        ]
        modes = [asdict(each) | verdict for each, verdict in zip(self.modes, verdicts, strict=True)]
        return asdict(self) | {"keeps_promises": self.keeps_promises, "modes": modes}


def find_violations(mode: str, differences: Differences) -> dict[str, int]:
    """Return how many differences of each kind break the promise of a mode; empty if it is kept."""
    counts = {kind: len(getattr(differences, kind)) for kind in _KINDS if kind not in ALLOWED_BY_MODE[mode]}
    return {kind: count for kind, count in counts.items() if count}


def make_report(
    seed: int,
    results: Sequence[RoundResult],
    differences_by_mode: Mapping[str, Differences],
    surprises: Iterable[str],
    seconds: float,
    *,
    without: str | None = None,
) -> TortureReport:
    """Put the rounds and the last comparison together."""
    return TortureReport(
        seed=seed,
        rounds=sum(each.round.number > 0 for each in results),
        seconds=round(seconds, 1),
        without=without,
        modes=tuple(_report_mode(mode, results, found) for mode, found in differences_by_mode.items()),
        surprises=tuple(surprises),
        seconds_by_kind=_time_by_kind(results),
        faults_struck=sum(len(each.struck) for each in results),
    )


def _report_mode(mode: str, results: Sequence[RoundResult], last: Differences) -> ModeReport:
    own = [each for each in results if each.round.mode == mode]
    survived = Counter(str(fault.kind) for each in own for fault in each.struck)
    aborted = sum(
        chunk.guarantee is WriteKind.ABORT for each in own for chunk in (*each.round.before, *each.round.meanwhile)
    )
    ids_by_kind: dict[str, Sequence[str]] = {kind: getattr(last, kind) for kind in _KINDS}
    found = {kind: len(ids) for kind, ids in ids_by_kind.items()}
    unexplained: dict[str, Sequence[str]] = {}
    for each in own:
        for kind, ids in each.unexplained.items():
            unexplained[kind] = [*unexplained.get(kind, ()), *ids]
    return ModeReport(
        mode=mode,
        rounds=sum(each.round.number > 0 for each in own),
        records=last.records,
        rows=last.rows,
        batches=sum(each.batches for each in own),
        survived={**survived, "transaction aborted": aborted},
        missed=sum(len(each.missed) for each in own),
        found=found,
        violations=find_violations(mode, last) | {kind: len(ids) for kind, ids in unexplained.items()},
        examples={kind: ids[:_IDS_SHOWN] for kind, ids in (ids_by_kind | unexplained).items() if ids},
        doubts=tuple(_find_doubts(mode, own, last)),
        drain_errors=tuple(f"round {each.round.number}: {error}" for each in own for error in each.drain_errors),
        stuck=next((each.stuck for each in own if each.stuck), None),
    )


def _find_doubts(mode: str, own: Sequence[RoundResult], last: Differences) -> Iterator[str]:
    """Return why the rounds of a mode show nothing."""
    if last.records == 0:
        yield "nothing was written, so nothing was shown"
    has_struck = any(each.round.faults[:1] == (ANOMALY_FAULT,) and ANOMALY_FAULT in each.struck for each in own)
    for anomaly in ALLOWED_BY_MODE[mode][:1]:
        if has_struck and not getattr(last, anomaly):
            yield f"a worker was killed between the two commits, and nothing was {anomaly}"


def _time_by_kind(results: Sequence[RoundResult]) -> dict[str, float]:
    """Return the mean time of the rounds with exactly one kind of fault, or none."""
    seconds: dict[str, list[float]] = {}
    for each in results:
        kinds = {str(fault.kind) for fault in each.round.faults}
        if len(kinds) <= 1 and each.round.number > 0:
            seconds.setdefault(next(iter(kinds), "quiet"), []).append(each.seconds)
    return {kind: round(sum(some) / len(some), 1) for kind, some in sorted(seconds.items())}


def verdict_table(report: TortureReport) -> Table:
    """One column for each mode."""
    table = Table(title=f"{report.rounds} rounds in {report.seconds:.0f} s, seed {report.seed}", box=box.SIMPLE_HEAD)
    table.add_column("")
    for each in report.modes:
        table.add_column(each.mode, justify="right")
    for label, values in (
        ("records in the log", [f"{each.records:,}" for each in report.modes]),
        ("rows in the target", [f"{each.rows:,}" for each in report.modes]),
        ("batches published", [f"{each.batches:,}" for each in report.modes]),
    ):
        table.add_row(label, *values)
    table.add_section()
    kinds = sorted({kind for each in report.modes for kind in each.survived})
    for kind in kinds:
        table.add_row(kind, *(str(each.survived.get(kind, 0)) for each in report.modes))
    table.add_row("[dim]struck too late[/]", *(f"[dim]{each.missed}[/]" for each in report.modes))
    table.add_section()
    for kind in _KINDS:
        table.add_row(kind.replace("_", " "), *(_cell(each, kind) for each in report.modes))
    table.add_section()
    table.add_row("promise", *(_verdict(each) for each in report.modes))
    table.add_row("what it allows", *(_ANOMALY[each.anomaly_seen] for each in report.modes))
    return table


def _cell(mode: ModeReport, kind: str) -> str:
    count = mode.found[kind]
    if kind in mode.violations:
        return f"[bold red]{count}[/]"
    return f"[yellow]{count}[/]" if kind in mode.allowed else f"[green]{count}[/]"


def _verdict(mode: ModeReport) -> str:
    if mode.keeps_promise:
        return "[green]kept[/]"
    if mode.stuck:
        return "[bold red]stuck[/]"
    return "[bold red]broken[/]" if mode.violations else "[bold red]not shown[/]"


def explanations(report: TortureReport) -> list[str]:
    """What a person needs to know beyond the table, one line each."""
    lines = []
    for each in report.modes:
        if each.stuck:
            lines.append(f"{each.mode} is stuck: {each.stuck}")
        for kind, count in each.violations.items():
            some = ", ".join(each.examples[kind][:3])
            lines.append(f"{each.mode}: {count} {kind.replace('_', ' ')}, for example {some}")
        lines.extend(f"{each.mode}: {doubt}" for doubt in each.doubts)
        lines.extend(f"{each.mode}: drained all the same after {error}" for error in each.drain_errors)
    if report.is_unharmed:
        lines.append("every fault came too late, so nothing was put to the test")
    return [*lines, *(f"unexpected: {each}" for each in report.surprises)]
