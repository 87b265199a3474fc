"""The picture of a run: rows a second as bars, with cost and damage by kills as text beside them."""

from collections.abc import Mapping
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from bench.about import About
from bench.figures import Figures

OURS = ("exactly_once", "at_least_once", "into_kafka", "into_iceberg")
TARGET_BY_PART = {"throughput": "PostgreSQL", "sinks": "Kafka, Iceberg"}
COLOUR_OF_OURS, COLOUR_OF_PEERS, COLOUR_OF_LIMITS = "#1f6f8b", "#b0a89f", "#e3ded8"
COLOUR_OF_FAULTS = "#b3261e"
TEXT, QUIET = "#222222", "#6b6b6b"
BAR_INCHES = 0.42


def has_bars(figures: Figures) -> bool:
    """Whether there is anything to draw."""
    return any(figures.subjects(part) for part in TARGET_BY_PART)


def draw(figures: Figures, titles: Mapping[str, str], about: About, file: Path) -> None:
    """Draw the contenders, the fastest first, then the pairs of the other sinks, then the limits."""
    pairs = [subject for subject in titles if subject in figures.subjects("sinks")]
    rows = [
        *(("throughput", subject) for subject in _by_speed(figures, "throughput")),
        *(("sinks", subject) for subject in pairs),
        *(("limits", subject) for subject in _by_speed(figures, "limits")),
    ]
    height = 1.75 + BAR_INCHES * len(rows)
    picture = Figure(figsize=(12, height), dpi=150, facecolor="white")
    FigureCanvasAgg(picture)
    axes = picture.add_axes((0.30, 0.15 / height, 0.40, 1 - 1.6 / height))
    _draw_bars(axes, figures, rows, titles)
    _write_columns(axes, figures, rows)
    targets = [name for part, name in TARGET_BY_PART.items() if figures.subjects(part)]
    title = f"From Kafka to {', '.join(targets)}"
    picture.text(0.015, 1 - 0.2 / height, title, fontsize=15, weight="bold", color=TEXT, va="top")
    subtitle = f"{about.records:,} JSON records, {about.taken}, {about.machine}, fsync on"
    picture.text(0.015, 1 - 0.55 / height, subtitle, fontsize=9.5, color=QUIET, va="top")
    picture.savefig(file)


def _by_speed(figures: Figures, part: str) -> list[str]:
    return sorted(figures.subjects(part), key=lambda subject: -(figures.median(part, subject, "rows_per_second") or 0))


def _draw_bars(axes: Axes, figures: Figures, rows: list[tuple[str, str]], titles: Mapping[str, str]) -> None:
    speeds = [figures.median(part, subject, "rows_per_second") or 0.0 for part, subject in rows]
    # With a limit that is far away, the contenders' bars would be too short to tell apart.
    longest = 2 * max(speed for speed, (part, _) in zip(speeds, rows, strict=True) if part != "limits")
    for place, ((part, subject), speed) in enumerate(zip(rows, speeds, strict=True)):
        colour = COLOUR_OF_LIMITS if part == "limits" else COLOUR_OF_PEERS
        colour = COLOUR_OF_OURS if subject in OURS else colour
        shown = min(speed, longest)
        axes.barh(place, shown, height=0.62, color=colour)
        label = f"{speed:,.0f}" + (" →" if speed > longest else "")
        inside = shown > 0.8 * longest
        axes.text(
            shown - 0.01 * longest if inside else shown + 0.01 * longest,
            place,
            label,
            va="center",
            ha="right" if inside else "left",
            fontsize=9.5,
            weight="bold" if subject in OURS else "normal",
            color=TEXT,
        )
    axes.set_yticks(range(len(rows)), [titles.get(subject, subject) for _, subject in rows], fontsize=9.5, color=TEXT)
    for tick, (_, subject) in zip(axes.get_yticklabels(), rows, strict=True):
        tick.set_fontweight("bold" if subject in OURS else "normal")
    axes.set_xlim(0, longest)
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.set_xticks([])
    axes.tick_params(axis="y", length=0)
    axes.spines[["top", "right", "bottom"]].set_visible(False)
    axes.spines["left"].set_color(QUIET)


def _write_columns(axes: Axes, figures: Figures, rows: list[tuple[str, str]]) -> None:
    """Write CPU, delay and the damage by kills beside each bar."""
    kills = max((figures.total("kills", subject, "kills") or 0 for subject in figures.subjects("kills")), default=0)
    columns = {
        1.13: ("CPU s per\nmillion rows", _tell_cpu),
        1.36: ("produce to visible\np50 / p99", _tell_delay),
        1.61: (f"lost / doubled\nafter {kills:.0f} kill -9", _tell_copies),
    }
    transform = axes.get_yaxis_transform()
    axes.text(0, -0.72, "rows per second", fontsize=9, color=QUIET, va="bottom", transform=transform)
    for x, (heading, tell) in columns.items():
        cells = [tell(figures, part, subject) for part, subject in rows]
        if not any(text for text, _ in cells):
            continue
        axes.text(x, -0.72, heading, fontsize=9, color=QUIET, ha="center", va="bottom", transform=transform)
        for place, (text, is_bad) in enumerate(cells):
            colour = COLOUR_OF_FAULTS if is_bad else TEXT
            axes.text(x, place, text, fontsize=9.5, color=colour, ha="center", va="center", transform=transform)


def _tell_cpu(figures: Figures, part: str, subject: str) -> tuple[str, bool]:
    value = figures.median(part, subject, "cpu_seconds_per_million")
    return ("" if value is None else f"{value:.1f}"), False


def _tell_delay(figures: Figures, _: str, subject: str) -> tuple[str, bool]:
    cuts = [figures.median("latency", subject, f"{cut}_milliseconds") for cut in ("p50", "p99")]
    shown = [f"{cut / 1000:.1f} s" if cut >= 1000 else f"{cut:.0f} ms" for cut in cuts if cut is not None]
    return " / ".join(shown), False


def _tell_copies(figures: Figures, _: str, subject: str) -> tuple[str, bool]:
    lost, doubled = (figures.total("kills", subject, measure) for measure in ("lost", "doubled"))
    if lost is None or doubled is None:
        return "", False
    return f"{lost:,.0f} / {doubled:,.0f}", bool(lost or doubled)
