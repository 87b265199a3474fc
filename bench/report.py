"""The results of a run: JSON for machines, Markdown for people, a plot for the README."""

import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

from bench import plot
from bench.about import About
from bench.figures import Figure, Figures
from bench.formats import FORMATS
from bench.goals import Verdict, judge
from bench.parts import starts
from bench.services import ROOT

RESULTS = ROOT / ".local" / "bench-results"
PICTURE = ROOT / "docs" / "pictures" / "bench.png"
TABLE = ROOT / "bench" / "results.md"

Titles = Mapping[str, str]


def read(folder: Path) -> tuple[About, list[Figure]]:
    """Read a run, and the figures of its whole parts. Raises OSError; TypeError if the bench was another one."""
    document = json.loads((folder / "figures.json").read_text())
    about = About(**document["about"])
    found = [each for each in document["figures"] if each["part"] in about.parts]
    return about, [Figure(each["part"], each["subject"], each["measure"], tuple(each["values"])) for each in found]


def write(figures: Figures, titles: Titles, about: About) -> Path:
    """Write the three files into a folder of their own; return the folder."""
    folder = RESULTS / datetime.now(UTC).strftime("%Y-%m-%dT%H-%M-%SZ")
    folder.mkdir(parents=True)
    verdicts = judge(figures)
    document = {
        "about": asdict(about),
        "goals": [{**asdict(each), "outcome": str(each.outcome)} for each in verdicts],
        "figures": [{**asdict(each), "median": each.median} for each in figures.all],
    }
    (folder / "figures.json").write_text(json.dumps(document, indent=2) + "\n")
    (folder / "table.md").write_text(to_markdown(figures, verdicts, titles, about))
    if plot.has_bars(figures):
        plot.draw(figures, titles, about, folder / "plot.png")
    return folder


def publish(folder: Path) -> None:
    """Put table and plot where the READMEs show them."""
    shutil.copy(folder / "table.md", TABLE)
    if (folder / "plot.png").exists():
        shutil.copy(folder / "plot.png", PICTURE)


def to_markdown(figures: Figures, verdicts: Sequence[Verdict], titles: Titles, about: About) -> str:
    """Return all tables that have figures."""
    durable = "fsync and synchronous_commit are on for everybody"
    taken = f"{about.records:,} records, {about.taken}, taken of {about.code} until {about.taken_at}"
    sections = [
        "" if about.is_full else "A small run, in which goals are missed that a whole one meets.",
        f"{about.machine}; {about.versions}; {taken}. {durable}.",
        _goals_table(verdicts),
        _contenders_table(figures, titles, "who", ("throughput", "limits")),
        _contenders_table(figures, titles, "into another sink", ("sinks",)),
        _latency_table(figures, titles),
        _starts_table(figures),
        _kills_table(figures, titles),
        _watched_table(figures, titles),
        _steps_table(figures, "throughput", "exactly_once", "where the time of a batch goes"),
        _steps_table(figures, "sinks", "into_kafka", "where the time of a batch into Kafka goes"),
        _steps_table(figures, "sinks", "into_iceberg", "where the time of a batch into Iceberg goes"),
        _steps_table(
            figures,
            "airflow",
            "warm_trigger",
            "where the time of a warm trigger goes, up to the end of its task publish",
        ),
        _steps_table(figures, "demo", "demo", "before make demo: the services, from nothing"),
        _audit_table(figures),
        _cpu_table(figures),
        _scaling_table(figures),
        _types_table(figures),
        _formats_table(figures),
        _airflow_table(figures),
        _pages_table(figures),
        _beside_pages_table(figures),
    ]
    if about.left_out:
        sections.append(f"Left out of this run: {', '.join(about.left_out)}.")
    return "\n\n".join(filter(None, sections)) + "\n"


def table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table in Markdown, numbers to the right; empty without rows."""
    if not rows:
        return ""
    marks = ["---", *["---:"] * (len(headings) - 1)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (headings, marks, *rows))


def to_text(value: float | None, unit: str) -> str:
    """Return a figure as people read it; a dash if it was not taken."""
    if value is None:
        return "—"
    match unit:
        case "%":
            return f"{value:.1%}"
        case "MiB":
            return f"{value / 2**20:,.0f} MiB"
        case "rows/s":
            return f"{value:,.0f} rows/s"
        case "ms":
            return f"{value:,.0f} ms"
        case _:
            is_short = unit == "s" and value < 0.1
            return f"{1000 * value:.1f} ms" if is_short else f"{value:.2f} {unit}".rstrip()


def _goals_table(verdicts: Sequence[Verdict]) -> str:
    rows = []
    for each in verdicts:
        goal = each.goal
        bound = f"≤ {goal.at_most:g}" if goal.at_most is not None else f"≥ {goal.at_least:g}"
        if goal.against is not None:
            bound, measured = f"{bound} x", "—" if each.ratio is None else f"{each.ratio:.2f} x"
            if len(each.ratios) > 1:
                measured += f" ({each.ratios[0]:.2f} to {each.ratios[-1]:.2f})"
        else:
            bound = f"≤ {to_text(goal.at_most, goal.unit)}"
            measured = to_text(each.figure, goal.unit)
        found = to_text(each.figure, goal.unit)
        if goal.against is not None and each.other is not None:
            found = f"{found} / {to_text(each.other, goal.unit)}"
        rows.append([goal.title, bound, measured, found, str(each.outcome)])
    return table(["goal", "bound", "measured", "figures", ""], rows)


def _contenders_table(figures: Figures, titles: Titles, heading: str, parts: Sequence[str]) -> str:
    columns = {
        "rows/s": ("rows_per_second", "", 1),
        "MB/s": ("megabytes_per_second", "", 1),
        "CPU s / M rows": ("cpu_seconds_per_million", "", 1),
        "peak memory": ("peak_memory_bytes", " MiB", 2**20),
        "WAL bytes / row": ("wal_bytes_per_row", "", 1),
    }
    rows = []
    # They were measured in a random order.
    place_by_subject = {subject: place for place, subject in enumerate(titles)}
    for part in parts:
        measured = figures.subjects(part)
        for subject in sorted(measured, key=lambda each: place_by_subject.get(each, len(titles))):
            found = [(figures.median(part, subject, measure), unit, by) for measure, unit, by in columns.values()]
            cells = ["—" if value is None else f"{_short(value / by)}{unit}" for value, unit, by in found]
            rows.append([titles.get(subject, subject), *cells])
    return table([heading, *columns], rows)


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"


def _latency_table(figures: Figures, titles: Titles) -> str:
    rows = [
        [
            titles.get(subject, subject),
            *(to_text(figures.median("latency", subject, f"{cut}_milliseconds"), "ms") for cut in ("p50", "p99")),
        ]
        for subject in figures.subjects("latency")
    ]
    return table(["produce to visible, 2,000 records/s", "p50", "p99"], rows)


def _starts_table(figures: Figures) -> str:
    rows, rates = [], starts.RECORDS_PER_SECOND_BY_RATE
    for name, title in starts.TITLES.items():
        cuts = (
            [
                figures.median(starts.PART, starts.subject_of(name, rate), f"{cut}_milliseconds")
                for cut in ("p50", "p99")
            ]
            for rate in rates
        )
        cells = [f"{to_text(p50, 'ms')}, {to_text(p99, 'ms')}" for p50, p99 in cuts]
        if any(name == each.rpartition(" at ")[0] for each in figures.subjects(starts.PART)):
            rows.append([title, *cells])
    return table(["produce to visible through Airflow: p50, p99", *map(starts.title_of, rates)], rows)


def _kills_table(figures: Figures, titles: Titles) -> str:
    rows = []
    for subject in figures.subjects("kills"):
        counts = (figures.total("kills", subject, measure) or 0 for measure in ("kills", "lost", "doubled"))
        rows.append([titles.get(subject, subject), *(f"{count:,.0f}" for count in counts)])
    return table(["killed with kill -9 while it writes", "kills", "rows lost", "rows doubled"], rows)


def _watched_table(figures: Figures, titles: Titles) -> str:
    rows = []
    for subject in figures.subjects("watched"):
        measures = ("kills", "records", "missing", "twice", "named_wrongly")
        counts = [figures.total("watched", subject, measure) or 0 for measure in measures]
        seconds = figures.median("watched", subject, "look_seconds")
        rows.append([titles.get(subject, subject), *(f"{count:,.0f}" for count in counts), to_text(seconds, "s")])
    headings = ["killed, then watched", "kills", "records", "offsets missing", "twice", "named wrongly", "a look"]
    return table(headings, rows)


def _steps_table(figures: Figures, part: str, subject: str, heading: str) -> str:
    """Return where the time goes: the measures in seconds, without the total."""
    rows = [
        [each.measure.removesuffix("_seconds").replace("_", " "), f"{each.median:.2f} s"]
        for each in figures.all
        if (each.part, each.subject) == (part, subject) and each.measure.endswith("_seconds")
    ]
    return table([heading, "median"], rows)


def _audit_table(figures: Figures) -> str:
    rows = []
    for subject in figures.subjects("audit"):
        audit, share = (figures.median("audit", subject, measure) for measure in ("seconds", "share_of_rest"))
        rows.append([subject, to_text(audit, "s"), to_text(share, "%")])
    return table(["audit of one batch", "time", "audit / rest"], rows)


def _cpu_table(figures: Figures) -> str:
    suffix = "_cpu_per_million"
    rows = [
        [each.measure.removesuffix(suffix), f"{each.median:.2f} s"]
        for each in figures.all
        if (each.part, each.subject) == ("throughput", "exactly_once") and each.measure.endswith(suffix)
    ]
    return table(["CPU of a million rows, exactly_once", "median"], rows)


def _scaling_table(figures: Figures) -> str:
    units = {"seconds": "s", "stage_seconds": "s", "cpu_seconds": "s", "wal_bytes": "", "transactions": ""}
    rows = [
        [subject, *(_short_of(figures.median("scaling", subject, measure), unit) for measure, unit in units.items())]
        for subject in figures.subjects("scaling")
    ]
    return table(["a batch", "time", "stage", "CPU", "WAL bytes", "transactions"], rows)


def _types_table(figures: Figures) -> str:
    rows = [
        [
            subject,
            to_text(figures.median("types", subject, "rows_per_second"), "rows/s"),
            to_text(figures.median("types", subject, "cpu_seconds_per_million"), "s"),
        ]
        for subject in figures.subjects("types")
    ]
    return table(["one column is", "rows/s", "CPU s / M rows"], rows)


def _formats_table(figures: Figures) -> str:
    measures = ("rows_per_second", "cpu_seconds_per_million", "bytes_per_record", "decoding_cpu_per_million")
    rows = []
    # They were measured in a random order.
    place_by_subject = {each.name: place for place, each in enumerate(FORMATS)}
    for subject in sorted(figures.subjects("formats"), key=lambda each: place_by_subject.get(each, len(FORMATS))):
        speed, cpu, size, decoding = (figures.median("formats", subject, measure) for measure in measures)
        cells = (to_text(speed, "rows/s"), to_text(cpu, "s"), _short_of(size, ""), to_text(decoding, "s"))
        rows.append([subject, *cells])
    headings = ["the records are", "rows/s", "CPU s / M rows", "bytes a record", "CPU s / M rows, decoding alone"]
    return table(headings, rows)


def _airflow_table(figures: Figures) -> str:
    run, idle = (
        figures.median("airflow", "airflow", measure) for measure in ("cpu_of_a_run", "cpu_of_a_second_without_work")
    )
    if run is None or idle is None:
        return ""
    rows = [["a run of six tasks, with our own Python in them", to_text(run, "s")]]
    rows += [["a second without work", to_text(idle, "s")]]
    return table(["CPU of Airflow's components", "median"], rows)


def _pages_table(figures: Figures) -> str:
    """Return the median of each moment, and the largest value of all moments and rounds."""
    moments = ("cold", "warm", "busy")
    rows = []
    for subject in figures.subjects("pages"):
        found = [figures.values("pages", subject, f"{moment}_seconds") for moment in moments]
        if all(found):
            medians = [figures.median("pages", subject, f"{moment}_seconds") for moment in moments]
            largest = max(value for values in found for value in values)
            cpu = figures.median("pages", subject, "cpu_seconds")
            rows.append([subject, *(_milliseconds(each) for each in (*medians, largest, cpu))])
    headings = ["page in Airflow", "cold", "warm", "busy", "largest", "CPU of a warm one"]
    return table(headings, rows)


def _beside_pages_table(figures: Figures) -> str:
    """Return the work beside the pages, which goes on during the requests."""
    rows = [
        [subject, each.measure.replace("_", " "), to_text(each.median, "s")]
        for subject in ("a look at all pipelines", "reading the long history")
        for each in figures.all
        if (each.part, each.subject) == ("pages", subject)
    ]
    return table(["beside the pages", "", "median"], rows)


def _milliseconds(seconds: float | None) -> str:
    return to_text(None if seconds is None else 1000 * seconds, "ms")


def _short_of(value: float | None, unit: str) -> str:
    return to_text(value, unit) if unit or value is None else f"{value:,.0f}"
