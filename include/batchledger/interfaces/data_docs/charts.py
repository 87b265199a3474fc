"""The history of a pipeline as one drawing of six panels: where each bar and each word stands, for a template of SVG.

Each panel answers one question, with batches from left to right; a panel with nothing to show says so. The colours are
by Okabe and Ito, which colour-blind people tell apart; bad values are hatched too. The drawing only names its colours,
and the page gives them values, so that the drawing follows its light and dark look.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import floor, log10

from markupsafe import Markup

from batchledger.books.figures import BatchFigures
from batchledger.interfaces.data_docs.index import find_template
from batchledger.model.batch import Lane

WIDTH, HEIGHT = 480, 215
"""One panel without its title and numbers, in the drawing's own units."""
_LABELS, _STEPS_UP = 8, 4
_ROUND = (1, 2, 2.5, 3, 4, 5, 8, 10)
_BAR = 0.8
_ROOM_ABOVE = 1.03


@dataclass(frozen=True, slots=True)
class Series:
    """One value a batch, by the oldest first; None: there is none. ``colour`` and ``pattern`` name what fills it."""

    label: str
    colour: str
    values: Sequence[float | None]
    pattern: str = ""


@dataclass(frozen=True, slots=True)
class Bar:
    """A rectangle, from its upper left corner."""

    x: float
    y: float
    width: float
    height: float
    series: Series


@dataclass(frozen=True, slots=True)
class Panel:
    """One panel: a title, lines with numbers, the batches' numbers, and bars or points.

    A ``legend`` explains several series. Each text comes with its place.
    """

    title: str
    lines: tuple[tuple[float, str], ...]
    names: tuple[tuple[float, int], ...]
    bars: tuple[Bar, ...] = ()
    points: tuple[tuple[float, float], ...] = ()
    legend: tuple[Series, ...] = ()


def draw_history(batches: Sequence[BatchFigures]) -> Markup:
    """Return the drawing of at least one batch, the oldest at the left."""
    panels = [_lay_out(title, list(list_series(batches)), batches) for title, list_series in _PANELS.items()]
    drawing = find_template("history.svg.j2").render(panels=panels, width=WIDTH, height=HEIGHT)
    return Markup(drawing)  # noqa: S704 -- the template has escaped it


def _rows(batches: Sequence[BatchFigures]) -> Iterator[Series]:
    def of(is_shown: Callable[[BatchFigures], bool]) -> list[float]:
        return [(each.accepted or 0) if is_shown(each) else 0 for each in batches]

    yield Series("published", "good", of(lambda each: each.published_at is not None and each.lane is Lane.LIVE))
    yield Series(
        "published again", "other", of(lambda each: each.published_at is not None and each.lane is Lane.REPLAY)
    )
    yield Series("not published", "bad", of(lambda each: each.published_at is None), "hatched")


def _checks(batches: Sequence[BatchFigures]) -> Iterator[Series]:
    def share(count: Callable[[BatchFigures], int]) -> list[float]:
        return [100 * count(each) / each.checks if each.checks else 0 for each in batches]

    yield Series("passed", "good", share(lambda each: each.passed))
    yield Series("nothing to judge", "quiet", share(lambda each: each.empty))
    yield Series("could not run", "aside", share(lambda each: each.not_run), "dotted")
    yield Series("failed", "bad", share(lambda each: each.failed), "hatched")


def _duplicates(batches: Sequence[BatchFigures]) -> Iterator[Series]:
    yield Series("dropped", "aside", [each.duplicates or 0 for each in batches])


def _quarantined(batches: Sequence[BatchFigures]) -> Iterator[Series]:
    yield Series("set aside", "aside", [each.quarantined or 0 for each in batches])


def _holes(batches: Sequence[BatchFigures]) -> Iterator[Series]:
    yield Series("explained", "quiet", [each.holes or 0 for each in batches])
    yield Series("accepted as lost", "aside", [each.accepted_loss or 0 for each in batches])
    yield Series("unexplained", "bad", [abs(each.unexplained or 0) for each in batches], "hatched")
    yield Series("missing numbers", "bad", [each.missing_numbers or 0 for each in batches], "dotted")


def _duration(batches: Sequence[BatchFigures]) -> Iterator[Series]:
    yield Series("", "good", [each.seconds for each in batches], "points")


_PANELS: Mapping[str, Callable[[Sequence[BatchFigures]], Iterator[Series]]] = {
    "Rows": _rows,
    "Checks, % of those asked for": _checks,
    "Duplicates": _duplicates,
    "Quarantined": _quarantined,
    "Holes": _holes,
    "Seconds from planned to published": _duration,
}


def _lay_out(title: str, series: Sequence[Series], batches: Sequence[BatchFigures]) -> Panel:
    """Place everything of a panel. A series that is 0 everywhere is left out; if all are, the panel has no lines."""
    across = WIDTH / len(batches)
    step = max(1, -(-len(batches) // _LABELS))
    # Counted from the newest batch, which always has its number.
    named = range(len(batches) - 1, -1, -step)
    names = tuple((round((place + 0.5) * across, 1), batches[place].batch_id) for place in named)
    drawn = [each for each in series if any(each.values)]
    if not drawn:
        return Panel(title, (), names)
    highest = max(sum(value or 0 for value in values) for values in zip(*(each.values for each in drawn), strict=True))
    up = HEIGHT / (highest if "%" in title else highest * _ROOM_ABOVE)
    lines = tuple((round(HEIGHT - value * up, 1), _shorten(value)) for value in _choose_lines(highest))
    if drawn[0].pattern == "points":
        known = [(place, value) for place, value in enumerate(drawn[0].values) if value is not None]
        points = tuple((round((place + 0.5) * across, 1), round(HEIGHT - value * up, 1)) for place, value in known)
        return Panel(title, lines, names, points=points)
    return Panel(title, lines, names, tuple(_stack(drawn, across, up)), legend=tuple(drawn) if len(series) > 1 else ())


def _stack(drawn: Sequence[Series], across: float, up: float) -> Iterator[Bar]:
    """Yield the bars of each batch on top of each other."""
    for place, values in enumerate(zip(*(each.values for each in drawn), strict=True)):
        y = float(HEIGHT)
        for series, value in zip(drawn, values, strict=True):
            if value:
                y -= value * up
                x = (place + (1 - _BAR) / 2) * across
                yield Bar(round(x, 1), round(y, 1), round(across * _BAR, 1), round(value * up, 1), series)


def _choose_lines(highest: float) -> Iterator[int]:
    """Yield 0 and up to four round, whole numbers above it that are no higher. Example: 1290 gives 400, 800, 1200."""
    power = 10.0 ** floor(log10(max(highest / _STEPS_UP, 1)))
    steps = (int(each * power) for each in _ROUND if (each * power).is_integer())
    step = next(each for each in steps if highest / each <= _STEPS_UP)
    yield from range(0, floor(highest) + 1, step)


def _shorten(value: int) -> str:
    """Return a number with as few digits as it has. Example: 1200 is 1.2k."""
    for size, letter in ((10**9, "G"), (10**6, "M"), (10**3, "k")):
        if value >= size:
            return f"{value / size:g}{letter}"
    return str(value)
