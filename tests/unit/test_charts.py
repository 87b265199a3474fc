"""Where the bars, lines and words of a history stand."""

import pytest

from batchledger.interfaces.data_docs.charts import HEIGHT, Series, _choose_lines, _shorten, _stack


@pytest.mark.parametrize(
    ("highest", "lines"),
    [
        (0.4, ["0"]),
        (1, ["0", "1"]),
        (7, ["0", "2", "4", "6"]),
        (18, ["0", "5", "10", "15"]),
        (100, ["0", "25", "50", "75", "100"]),
        (1290, ["0", "400", "800", "1.2k"]),
        (1_500_000, ["0", "400k", "800k", "1.2M"]),
    ],
)
def test_lines_of_a_panel_are_round_and_few(highest: float, lines: list[str]) -> None:
    assert [_shorten(each) for each in _choose_lines(highest)] == lines


def test_bars_of_a_batch_stand_on_each_other_and_nothing_stands_for_nothing() -> None:
    good, bad = Series("good", "good", [10, 0]), Series("bad", "bad", [5, 20], "hatched")
    bars = list(_stack([good, bad], across=100, up=2))
    assert [(each.x, each.y, each.width, each.height, each.series.label) for each in bars] == [
        (10, HEIGHT - 20, 80, 20, "good"),
        (10, HEIGHT - 30, 80, 10, "bad"),
        (110, HEIGHT - 40, 80, 40, "bad"),
    ]
