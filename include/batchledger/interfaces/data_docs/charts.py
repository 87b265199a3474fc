"""The history of a pipeline as one drawing of six panels: SVG inside a page, by matplotlib.

Each panel answers one question, with batches from left to right; a panel with nothing to show says so. The colours are
by Okabe and Ito, which colour-blind people tell apart; bad values are hatched too. The drawing only names its colours,
and the page gives them values, so that the drawing follows its light and dark look.
"""

import io
import re
from collections.abc import Callable, Sequence
from typing import Any

import matplotlib as mpl
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, MaxNLocator

from batchledger.books.figures import BatchFigures
from batchledger.model.batch import Lane

# The colours of the drawing, and their names in the style sheet.
_INK, _FAINT = "#010203", "#040506"
_GOOD, _ASIDE, _BAD, _OTHER, _QUIET = "#0072b2", "#e69f00", "#d55e00", "#56b4e9", "#999999"
_NAMES = {
    _INK: "ink",
    _FAINT: "faint",
    _GOOD: "good",
    _ASIDE: "aside",
    _BAD: "bad",
    _OTHER: "other",
    _QUIET: "quiet",
}
_COLOURS = re.compile("|".join(_NAMES))
_HATCH = "////"
_LABELS = 8
_STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    # Otherwise two drawings of the same figures differ.
    "svg.hashsalt": "batchledger",
    "font.family": "sans-serif",
    "font.size": 9,
    "hatch.linewidth": 0.6,
    "text.color": _INK,
    "axes.edgecolor": _FAINT,
    "axes.labelcolor": _INK,
    "axes.facecolor": "none",
    "axes.titlelocation": "left",
    "axes.titlesize": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "grid.color": _FAINT,
    "grid.linewidth": 0.4,
    "xtick.color": _INK,
    "ytick.color": _INK,
    "figure.facecolor": "none",
    "legend.frameon": False,
    "legend.fontsize": 8,
}

Series = tuple[str, str, str, Sequence[float]]


def draw_history(batches: Sequence[BatchFigures]) -> Markup:
    """Return the drawing of at least one batch, the oldest at the left."""
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(11, 8.4), layout="constrained")
        FigureCanvasSVG(figure)
        grid = figure.subplots(3, 2).flat
        for axes, (title, draw) in zip(grid, _PANELS.items(), strict=True):
            axes.set_title(title)
            draw(axes, batches)
            _name_batches(axes, batches)
        text = io.StringIO()
        figure.savefig(text, format="svg", metadata={"Date": None, "Creator": None, "Title": "History"})
    svg = text.getvalue()
    drawing = svg[svg.index("<svg") :]
    return Markup(_COLOURS.sub(lambda found: f"var(--{_NAMES[found[0]]})", drawing))  # noqa: S704


def _rows(axes: Axes, batches: Sequence[BatchFigures]) -> None:
    def of(lane: Lane, *, is_visible: bool) -> list[float]:
        return [
            (each.accepted or 0) if each.lane is lane and (each.published_at is not None) is is_visible else 0
            for each in batches
        ]

    hidden = [sum(pair) for pair in zip(*(of(lane, is_visible=False) for lane in Lane), strict=True)]
    _stack(
        axes,
        ("published", _GOOD, "", of(Lane.LIVE, is_visible=True)),
        ("published again", _OTHER, "", of(Lane.REPLAY, is_visible=True)),
        ("not published", _BAD, _HATCH, hidden),
    )


def _duplicates(axes: Axes, batches: Sequence[BatchFigures]) -> None:
    _stack(axes, ("dropped", _ASIDE, "", [each.duplicates or 0 for each in batches]))


def _holes(axes: Axes, batches: Sequence[BatchFigures]) -> None:
    _stack(
        axes,
        ("explained", _QUIET, "", [each.holes or 0 for each in batches]),
        ("accepted as lost", _ASIDE, "", [each.accepted_loss or 0 for each in batches]),
        ("unexplained", _BAD, _HATCH, [abs(each.unexplained or 0) for each in batches]),
        ("missing numbers", _BAD, "....", [each.missing_numbers or 0 for each in batches]),
    )


def _quarantined(axes: Axes, batches: Sequence[BatchFigures]) -> None:
    _stack(axes, ("set aside", _ASIDE, "", [each.quarantined or 0 for each in batches]))


def _checks(axes: Axes, batches: Sequence[BatchFigures]) -> None:
    def share(count: Callable[[BatchFigures], int]) -> list[float]:
        return [100 * count(each) / each.checks if each.checks else 0 for each in batches]

    _stack(
        axes,
        ("passed", _GOOD, "", share(lambda each: each.passed)),
        ("nothing to judge", _QUIET, "", share(lambda each: each.empty)),
        ("could not run", _ASIDE, "....", share(lambda each: each.not_run)),
        ("failed", _BAD, _HATCH, share(lambda each: each.failed)),
    )
    axes.set_ylim(0, 100)


def _duration(axes: Axes, batches: Sequence[BatchFigures]) -> None:
    known = [(place, each.seconds) for place, each in enumerate(batches) if each.seconds is not None]
    if not known:
        _say_nothing(axes)
        return
    places, seconds = zip(*known, strict=True)
    axes.plot(places, seconds, color=_GOOD, linewidth=1.2, marker="o", markersize=3)
    axes.set_ylim(bottom=0)


_PANELS: dict[str, Callable[[Axes, Sequence[BatchFigures]], None]] = {
    "Rows": _rows,
    "Checks, % of those asked for": _checks,
    "Duplicates": _duplicates,
    "Quarantined": _quarantined,
    "Holes": _holes,
    "Seconds from planned to published": _duration,
}


def _stack(axes: Axes, *series: Series) -> None:
    """Draw bars on top of each other; a series that is 0 everywhere is left out."""
    drawn = [each for each in series if any(each[3])]
    if not drawn:
        _say_nothing(axes)
        return
    below = [0.0] * len(drawn[0][3])
    for label, colour, hatch, values in drawn:
        is_bad = bool(hatch)
        axes.bar(
            range(len(values)),
            values,
            bottom=below,
            width=0.8,
            color=colour,
            label=label,
            hatch=hatch or None,
            edgecolor=_INK if is_bad else colour,
            linewidth=0.4,
        )
        below = [low + value for low, value in zip(below, values, strict=True)]
    if len(series) > 1:
        axes.legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=len(drawn), borderpad=0, handlelength=1.2)


def _say_nothing(axes: Axes) -> None:
    axes.text(0.5, 0.5, "none", transform=axes.transAxes, ha="center", va="center", fontsize=11, color=_INK)
    axes.set_yticks([])


def _name_batches(axes: Axes, batches: Sequence[BatchFigures]) -> None:
    axes.set_xlim(-0.7, len(batches) - 0.3)
    step = max(1, -(-len(batches) // _LABELS))
    # Counted from the newest batch, which always has its number.
    places = [len(batches) - 1 - back for back in range(0, len(batches), step)]
    axes.set_xticks(places, [str(batches[place].batch_id) for place in places])
    if axes.get_yticks().size:
        axes.yaxis.set_major_locator(MaxNLocator(4, integer=True))
        axes.yaxis.set_major_formatter(EngFormatter(sep=""))
