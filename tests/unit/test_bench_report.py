"""What a run writes: tables that say what is missing, and a picture."""

from dataclasses import replace
from pathlib import Path

import pytest

from bench import report
from bench.__main__ import find_unfinished
from bench.about import About
from bench.figures import Figure, Figures
from bench.goals import judge
from bench.plot import draw
from bench.report import to_markdown

TITLES = {"exactly_once": "Batchledger, exactly_once, with audit", "loop": "hand-written loop"}
ABOUT = About("2026-01-01T00:00:00+00:00", "1a2b3c", 2_000_000, 5, ("throughput",), ("kills",), "2 cores", "Kafka 4")
FIGURES = Figures(
    tuple(
        Figure(part, subject, measure, (value,))
        for part, subject, measure, value in (
            ("throughput", "exactly_once", "rows_per_second", 330_000.0),
            ("throughput", "exactly_once", "cpu_seconds_per_million", 5.25),
            ("throughput", "loop", "rows_per_second", 300_000.0),
            ("limits", "consume", "rows_per_second", 900_000.0),
            ("kills", "loop", "kills", 3.0),
            ("kills", "loop", "lost", 0.0),
            ("kills", "loop", "doubled", 10_000.0),
        )
    )
)


def test_table_names_goal_figure_ratio_and_outcome() -> None:
    text = to_markdown(FIGURES, judge(FIGURES), TITLES, ABOUT)
    goal = next(line for line in text.splitlines() if "audit against the hand-written loop" in line)
    assert goal.endswith("| ≥ 1.2 x | 1.10 x | 330,000 rows/s / 300,000 rows/s | missed |")
    assert "| Batchledger, exactly_once, with audit | 330,000 | — | 5.2 | — | — |" in text
    assert "| hand-written loop | 3 | 0 | 10,000 |" in text


def test_watched_writers_are_listed_with_what_was_named_wrongly() -> None:
    values = {"kills": 9, "records": 200_000, "missing": 600, "twice": 0, "named_wrongly": 0, "look_seconds": 3.5}
    found = Figures(tuple(Figure("watched", "loop", measure, (value,)) for measure, value in values.items()))
    assert "| hand-written loop | 9 | 200,000 | 600 | 0 | 0 | 3.50 s |" in to_markdown(found, [], TITLES, ABOUT)


def test_table_of_a_small_run_says_that_its_goals_mean_little() -> None:
    small = replace(ABOUT, records=100_000)
    assert to_markdown(FIGURES, judge(FIGURES), TITLES, small).startswith("A small run")
    assert not to_markdown(FIGURES, judge(FIGURES), TITLES, ABOUT).startswith("A small run")


def test_table_gives_the_spread_of_a_ratio() -> None:
    rounds = Figures.collect(
        Figure("throughput", subject, "rows_per_second", values)
        for subject, values in (("exactly_once", (110.0, 90.0, 120.0)), ("loop", (100.0, 100.0, 100.0)))
    )
    assert "| 1.10 x (0.90 to 1.20) |" in to_markdown(rounds, judge(rounds), TITLES, ABOUT)


def test_run_that_goes_on_keeps_whole_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "RESULTS", tmp_path)
    about, found = report.read(report.write(FIGURES, TITLES, ABOUT))
    assert found == [each for each in FIGURES.all if each.part == "throughput"]
    assert (about.code, about.records, about.rounds) == (ABOUT.code, ABOUT.records, ABOUT.rounds)
    assert find_unfinished(FIGURES.all) == {"kills"}
    assert find_unfinished(FIGURES.all[:-3]) == {"throughput", "limits"}


def test_table_says_what_was_left_out() -> None:
    assert "Left out of this run: kills." in to_markdown(FIGURES, judge(FIGURES), TITLES, ABOUT)


def test_other_sinks_have_a_table_of_their_own_in_which_peers_follow_one_another() -> None:
    titles = {"into_kafka": "Batchledger into Kafka", "streaming_into_kafka": "Structured Streaming into Kafka"}
    found = [Figure("sinks", each, "rows_per_second", (50_000.0,)) for each in reversed(titles)]
    steps = [Figure("sinks", "into_kafka", f"{each}_seconds", (2.0,)) for each in ("stage", "publish")]
    lines = to_markdown(Figures((*FIGURES.all, *found, *steps)), [], TITLES | titles, ABOUT).splitlines()
    heading = next(number for number, line in enumerate(lines) if line.startswith("| into another sink |"))
    assert [line.split(" |")[0] for line in lines[heading + 2 : heading + 4]] == [
        f"| {each}" for each in titles.values()
    ]
    assert "| publish | 2.00 s |" in lines


def test_formats_are_listed_with_what_their_decoding_alone_costs() -> None:
    found = [
        Figure("formats", "Avro", measure, (value,))
        for measure, value in (
            ("decoding_cpu_per_million", 0.5),
            ("rows_per_second", 250_000.0),
            ("cpu_seconds_per_million", 4.5),
            ("bytes_per_record", 90.4),
        )
    ]
    peer = Figure("formats", "Avro, by another program", "rows_per_second", (100_000.0,))
    text = to_markdown(Figures((*found, peer)), [], TITLES, ABOUT)
    assert "| Avro | 250,000 rows/s | 4.50 s | 90 | 0.50 s |" in text
    assert "| Avro, by another program | 100,000 rows/s | — | — | — |" in text


def test_picture_is_drawn_of_whatever_figures_there_are(tmp_path: Path) -> None:
    other_sinks = Figures((Figure("sinks", "into_kafka", "rows_per_second", (50_000.0,)),))
    for number, figures in enumerate((FIGURES, other_sinks, Figures(FIGURES.all + other_sinks.all))):
        draw(figures, TITLES | {"into_kafka": "Batchledger into Kafka"}, ABOUT, tmp_path / f"{number}.png")
        assert (tmp_path / f"{number}.png").read_bytes().startswith(b"\x89PNG")
