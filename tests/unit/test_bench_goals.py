"""Figures become verdicts by arithmetic alone."""

import pytest

from bench.figures import Figure, Figures, describe
from bench.goals import FIXED, Outcome, Verdict, judge


def verdict(title: str, *figures: Figure) -> Verdict:
    (found,) = (each for each in judge(Figures.collect(figures)) if title in each.goal.title)
    return found


def rows_per_second(subject: str, *values: float, part: str = "throughput") -> Figure:
    return Figure(part, subject, "rows_per_second", values)


def test_values_of_the_rounds_are_joined_and_their_median_is_what_counts() -> None:
    rounds = [next(describe("throughput", "loop", rows_per_second=value)) for value in (3, 1, 2)]
    figures = Figures.collect(rounds)
    assert figures.all == (rows_per_second("loop", 3.0, 1.0, 2.0),)
    assert figures.median("throughput", "loop", "rows_per_second") == 2.0


@pytest.mark.parametrize(
    ("title", "ours", "peer", "ratio", "outcome"),
    [
        ("AvailableNow + foreachBatch", 220.0, ("available_now", 100.0), 2.2, Outcome.MET),
        ("AvailableNow + foreachBatch", 219.0, ("available_now", 100.0), 2.19, Outcome.MISSED),
        ("audit against the hand-written loop", 120.0, ("loop", 100.0), 1.2, Outcome.MET),
        ("audit against the hand-written loop", 119.0, ("loop", 100.0), 1.19, Outcome.MISSED),
        ("against at_least_once", 95.0, ("at_least_once", 100.0), 0.95, Outcome.MET),
        ("against at_least_once", 94.0, ("at_least_once", 100.0), 0.94, Outcome.MISSED),
    ],
)
def test_ratio_to_a_peer_decides(
    title: str, ours: float, peer: tuple[str, float], ratio: float, outcome: Outcome
) -> None:
    name, speed = peer
    found = verdict(title, rows_per_second("exactly_once", ours), rows_per_second(name, speed))
    assert (found.ratio, found.outcome) == (pytest.approx(ratio), outcome)


@pytest.mark.parametrize(
    ("subject", "speed", "outcome"),
    [
        ("Avro", 100.0, Outcome.MET),
        ("Avro", 99.0, Outcome.MISSED),
        ("nested JSON", 80.0, Outcome.MET),
        ("nested JSON", 79.0, Outcome.MISSED),
    ],
)
@pytest.mark.parametrize(
    ("measure", "ending"), [("rows_per_second", "JSON"), ("decoded_per_cpu_second", "decoding alone")]
)
def test_format_is_compared_with_flat_json(
    subject: str, speed: float, outcome: Outcome, measure: str, ending: str
) -> None:
    figures = [Figure("formats", name, measure, (value,)) for name, value in ((subject, speed), ("flat JSON", 100.0))]
    (found,) = (
        each
        for each in judge(Figures.collect(figures))
        if each.goal.title.startswith(f"records in {subject}") and each.goal.title.endswith(ending)
    )
    assert (found.outcome, len(found.ratios)) == (outcome, 1)


def test_rounds_are_compared_one_by_one() -> None:
    # The machine was slow in the second round, for both.
    found = verdict(
        "with audit against the hand-written loop",
        rows_per_second("exactly_once", 120, 60, 99),
        rows_per_second("loop", 100, 50, 90),
    )
    assert (found.ratio, found.ratios) == (pytest.approx(1.2), pytest.approx((1.1, 1.2, 1.2)))
    assert (found.figure, found.other) == (99, 90)


def test_medians_are_compared_where_one_was_measured_more_often() -> None:
    once = Figure("backlog", "backlog", "rows_per_second", (95.0,))
    found = verdict("rows/s of a backlog", once, rows_per_second("one_batch", 90, 100, 110, part="backlog"))
    assert (found.ratio, found.ratios) == (pytest.approx(0.95), ())


def test_goal_without_its_figures_is_neither_met_nor_missed() -> None:
    only_ours = rows_per_second("exactly_once", 100.0)
    assert verdict("with audit against the hand-written loop", only_ours).outcome is Outcome.NOT_MEASURED
    assert {each.outcome for each in judge(Figures(()))} == {Outcome.NOT_MEASURED}
    assert len(judge(Figures(()))) == len(FIXED)


@pytest.mark.parametrize(("seconds", "outcome"), [(1.2, Outcome.MET), (1.21, Outcome.MISSED)])
def test_bound_of_a_figure_is_allowed_itself(seconds: float, outcome: Outcome) -> None:
    assert verdict("warm trigger", Figure("airflow", "warm_trigger", "seconds", (seconds,))).outcome is outcome


def test_cold_start_is_compared_with_the_warm_trigger() -> None:
    warm = Figure("airflow", "warm_trigger", "seconds", (2.0,))
    cold = Figure("airflow", "cold_available_now", "seconds", (12.0,))
    assert verdict("cold spark-submit", warm, cold).outcome is Outcome.MET
    slower = Figure("airflow", "warm_trigger", "seconds", (2.1,))
    assert verdict("cold spark-submit", slower, cold).outcome is Outcome.MISSED


def test_each_program_of_the_backlog_has_a_goal_for_its_memory() -> None:
    figures = [
        Figure("backlog", "one_batch", "spark_java_peak_bytes", (100.0,)),
        Figure("backlog", "backlog", "spark_java_peak_bytes", (121.0,)),
        Figure("backlog", "one_batch", "postgres_postgres_peak_bytes", (100.0,)),
        Figure("backlog", "backlog", "postgres_postgres_peak_bytes", (90.0,)),
    ]
    assert verdict("one batch: spark, java", *figures).outcome is Outcome.MISSED
    assert verdict("one batch: postgres, postgres", *figures).outcome is Outcome.MET
