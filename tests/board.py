"""The board for Grafana as a picture, without Grafana: Prometheus answers the queries, and matplotlib draws them.

Titles, places, queries, legends, units and thresholds are those in board.json.
"""

import io
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from math import nan
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.dates import AutoDateLocator, DateFormatter
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import FuncFormatter, MaxNLocator
from PIL import Image

from tests.prometheus import PrometheusServer, TimeSeries, fill_in

STEPS = 240
# Grafana's, if Prometheus scrapes every 15 s.
RATE_INTERVAL = "1m"
COLUMNS = 24
INK, FAINT = "#24292f", "#d0d7de"
COLOUR_BY_NAME = {"green": "#1a7f37", "yellow": "#9a6700", "red": "#b3261e"}
LINES = ("#0072b2", "#d55e00", "#009e73", "#e69f00", "#cc79a7", "#56b4e9", "#999999")


@dataclass(frozen=True)
class Answer:
    """What Prometheus has answered to a panel."""

    panel: Mapping[str, Any]
    series: Sequence[TimeSeries]

    @property
    def legends(self) -> list[str]:
        """The name of each line, by the legend of the panel; a label that a line lacks stays in braces."""
        (target,) = self.panel["targets"]
        return [
            re.sub(r"{{(\w+)}}", lambda found, each=each: each.labels.get(found[1], found[0]), target["legendFormat"])
            for each in self.series
        ]


def ask_board(server: PrometheusServer, board: Mapping[str, Any], since: float, until: float) -> list[Answer]:
    """Ask the query of each panel between two moments in Unix time."""
    found = []
    for panel in board["panels"]:
        (target,) = panel["targets"]
        query = fill_in(target["expr"], RATE_INTERVAL)
        # A query for now is a range of one moment: the last step of a longer one may fall short of the end.
        first = until if target.get("instant") else since
        found.append(Answer(panel, server.query_range(query, first, until, (until - since) / STEPS)))
    return found


def draw_board(answers: Sequence[Answer], file: Path) -> None:
    """Draw each panel in its place."""
    rows = max(each.panel["gridPos"]["y"] + each.panel["gridPos"]["h"] for each in answers)
    picture = Figure(figsize=(13, rows * 0.4), dpi=90, facecolor="white", layout="constrained")
    FigureCanvasAgg(picture)
    grid = picture.add_gridspec(rows, COLUMNS)
    for each in answers:
        place = each.panel["gridPos"]
        axes = picture.add_subplot(grid[place["y"] : place["y"] + place["h"], place["x"] : place["x"] + place["w"]])
        axes.set_title(each.panel["title"], loc="left", fontsize=10, weight="bold", color=INK)
        _DRAW_BY_TYPE[each.panel["type"]](axes, each)
    drawn = io.BytesIO()
    picture.savefig(drawn)
    # A few colours are enough, and a third of the size.
    Image.open(drawn).convert("RGB").quantize(64).save(file, optimize=True)


def _draw_lines(axes: Axes, answer: Answer) -> None:
    for number, (series, legend) in enumerate(zip(answer.series, answer.legends, strict=True)):
        moments, values = zip(*_break_at_gaps(series), strict=True)
        axes.plot(moments, values, color=LINES[number % len(LINES)], linewidth=1.6, label=legend)
    unit = _unit_of(answer)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: format_value(value, unit)))
    axes.yaxis.set_major_locator(MaxNLocator(5))
    axes.xaxis.set_major_locator(AutoDateLocator(maxticks=6))
    axes.xaxis.set_major_formatter(DateFormatter("%H:%M:%S"))
    axes.tick_params(labelsize=8, colors=INK, length=0)
    axes.grid(color=FAINT, linewidth=0.5)
    axes.spines[:].set_visible(False)
    below = (0, -0.1)
    axes.legend(loc="upper left", bbox_to_anchor=below, fontsize=8, frameon=False, ncols=4, borderaxespad=0)


def _break_at_gaps(series: TimeSeries) -> Iterator[tuple[datetime, float]]:
    """Yield the points, and one without a value wherever Prometheus had none."""
    step = min((after - before for before, after in pairwise(series.moments)), default=0.0)
    for before, moment, value in zip((series.moments[0], *series.moments), series.moments, series.values, strict=False):
        if moment - before > 1.5 * step:
            yield datetime.fromtimestamp(before + step, UTC), nan
        yield datetime.fromtimestamp(moment, UTC), value


def _draw_number(axes: Axes, answer: Answer) -> None:
    (series,) = answer.series
    value = series.values[-1]
    steps = answer.panel["fieldConfig"]["defaults"]["thresholds"]["steps"]
    colour = [each["color"] for each in steps if each["value"] is None or value >= each["value"]][-1]
    axes.set_axis_off()
    axes.add_patch(Rectangle((0, 0), 1, 1, color=COLOUR_BY_NAME[colour], transform=axes.transAxes))
    text = format_value(value, _unit_of(answer))
    axes.text(0.5, 0.5, text, fontsize=22, weight="bold", color="white", ha="center", va="center")


def _draw_table(axes: Axes, answer: Answer) -> None:
    (organize,) = [each["options"] for each in answer.panel["transformations"] if each["id"] == "organize"]
    # Labels that are empty have no column.
    rows = [each.labels for each in answer.series]
    names = [name for name in sorted({name for row in rows for name in row}) if name not in organize["excludeByName"]]
    axes.set_axis_off()
    table = axes.table(
        [[row[name] for name in names] for row in rows], colLabels=names, loc="upper left", cellLoc="left"
    )
    table.auto_set_font_size(False)
    table.set_fontsize(9)
    table.scale(1, 1.4)
    for cell in table.get_celld().values():
        cell.set_edgecolor(FAINT)


_DRAW_BY_TYPE = {"timeseries": _draw_lines, "stat": _draw_number, "table": _draw_table}


def format_value(value: float, unit: str) -> str:
    """Return a value in the unit of its panel, as Grafana does: seconds grow to minutes, hours and days."""
    if unit == "s":
        for size, name in ((86400, "d"), (3600, "h"), (60, "min")):
            if abs(value) >= size:
                return f"{value / size:.3g} {name}"
        return f"{value:.3g} s" if abs(value) >= 1 or value == 0 else f"{value * 1000:.3g} ms"
    return f"{value / 1000:.3g} K" if abs(value) >= 1000 else f"{value:.3g}"


def _unit_of(answer: Answer) -> str:
    return str(answer.panel["fieldConfig"]["defaults"]["unit"])
