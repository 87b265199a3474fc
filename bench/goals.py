"""The goals, and whether the figures of a run meet them. Pure: figures in, rows out."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from statistics import median

from bench.figures import Figures
from bench.formats import AVRO, FLAT_JSON, NESTED_JSON, PROTOBUF
from bench.parts import formats, scaling, starts, types
from bench.parts.throughput import SINKS

GIBIBYTE = 1024**3
MEMORY = "_peak_bytes"


class Outcome(StrEnum):
    """The outcome of a goal."""

    MET = "met"
    MISSED = "missed"
    NOT_MEASURED = "not measured"


@dataclass(frozen=True)
class Source:
    """The address of a figure: part, subject, measure."""

    part: str
    subject: str
    measure: str

    def find(self, figures: Figures) -> float | None:
        """The median of its rounds."""
        return figures.median(self.part, self.subject, self.measure)

    def values(self, figures: Figures) -> tuple[float, ...]:
        """The values of its rounds, in their order."""
        return figures.values(self.part, self.subject, self.measure)


@dataclass(frozen=True)
class Goal:
    """A bound for a figure, or for its ratio to the figure ``against``.

    With ``against``, ``at_most`` and ``at_least`` bound the ratio. ``unit`` is the unit of the figure.
    """

    title: str
    figure: Source
    unit: str
    against: Source | None = None
    at_most: float | None = None
    at_least: float | None = None


@dataclass(frozen=True)
class Verdict:
    """A goal with the medians of its measurements.

    ``ratio`` is set if two figures are compared. If both were measured in the same rounds, ``ratios`` has the ratio of
    each round, smallest first, and ``ratio`` is their median.
    """

    goal: Goal
    figure: float | None
    other: float | None
    ratio: float | None
    ratios: tuple[float, ...]
    outcome: Outcome


WARM = Source("airflow", "warm_trigger", "seconds")
EXACTLY_ONCE = Source("throughput", "exactly_once", "rows_per_second")
BACKLOG = Source("backlog", "backlog", "rows_per_second")
BOOKKEEPING = "bookkeeping"
INTERLEAVED = ("throughput", SINKS, scaling.PART, types.PART, formats.PART)
"""The parts that measure all their subjects in each round."""

FIXED: tuple[Goal, ...] = (
    Goal("warm trigger through Airflow → published and audited, 10k records", WARM, "s", at_most=1.2),
    Goal(
        "cold spark-submit AvailableNow, 10k records, against that",
        Source("airflow", "cold_available_now", "seconds"),
        "s",
        against=WARM,
        at_least=6.0,
    ),
    Goal(
        "one record through Airflow without cron, all idle → visible",
        Source(starts.PART, starts.subject_of("on_records", starts.ALONE), "p50_milliseconds"),
        "ms",
        at_most=3000.0,
    ),
    Goal(
        "exactly_once with audit against AvailableNow + foreachBatch JDBC",
        EXACTLY_ONCE,
        "rows/s",
        against=Source("throughput", "available_now", "rows_per_second"),
        at_least=2.2,
    ),
    Goal(
        "exactly_once with audit against the hand-written loop",
        EXACTLY_ONCE,
        "rows/s",
        against=Source("throughput", "loop", "rows_per_second"),
        at_least=1.2,
    ),
    Goal(
        "exactly_once against at_least_once",
        EXACTLY_ONCE,
        "rows/s",
        against=Source("throughput", "at_least_once", "rows_per_second"),
        at_least=0.95,
    ),
    Goal(
        "integrity audit's share of the batch's wall time",
        Source("throughput", "exactly_once", "audit_share"),
        "%",
        at_most=0.10,
    ),
    Goal(
        "CPU of a million rows, exactly_once with audit",
        Source("throughput", "exactly_once", "cpu_seconds_per_million"),
        "s",
        at_most=4.0,
    ),
    Goal(
        "CPU of a million rows, exactly_once, against the hand-written loop",
        Source("throughput", "exactly_once", "cpu_seconds_per_million"),
        "s",
        against=Source("throughput", "loop", "cpu_seconds_per_million"),
        at_most=0.97,
    ),
    *(
        Goal(
            f"produce to visible, 2,000 records/s, exactly_once with audit: {name}",
            Source("latency", "exactly_once", f"{name}_milliseconds"),
            "ms",
            at_most=bound,
        )
        for name, bound in (("p50", 400.0), ("p99", 900.0))
    ),
    Goal(
        "into Iceberg against Structured Streaming's sink",
        Source(SINKS, "into_iceberg", "rows_per_second"),
        "rows/s",
        against=Source(SINKS, "streaming_into_iceberg", "rows_per_second"),
        at_least=1.0,
    ),
    Goal("peak memory, into Iceberg", Source(SINKS, "into_iceberg", "peak_memory_bytes"), "MiB", at_most=2 * GIBIBYTE),
    Goal(
        "into Kafka against Spark's at-least-once sink",
        Source(SINKS, "into_kafka", "rows_per_second"),
        "rows/s",
        against=Source(SINKS, "streaming_into_kafka", "rows_per_second"),
        at_least=0.9,
    ),
    *(
        Goal(f"a batch of {shape.subject} records", Source(scaling.PART, shape.subject, "seconds"), "s", at_most=bound)
        for shape, bound in ((scaling.MANY, 1.0), (scaling.MOST, 60.0))
    ),
    Goal(
        "all records in one partition against four",
        Source(scaling.PART, scaling.WHOLE_IN_ONE.subject, "rows_per_second"),
        "rows/s",
        against=Source(scaling.PART, scaling.WHOLE.subject, "rows_per_second"),
        at_least=0.8,
    ),
    *(
        Goal(
            f"{name} against all columns as strings",
            Source(types.PART, name, "rows_per_second"),
            "rows/s",
            against=Source(types.PART, types.TEXTS, "rows_per_second"),
            at_least=0.8,
        )
        for name in (types.DECIMAL, types.FLOAT, types.NESTED)
    ),
    *(
        Goal(
            f"records in {name} against flat JSON{title}",
            Source(formats.PART, name, measure),
            "rows/s",
            against=Source(formats.PART, FLAT_JSON.name, measure),
            at_least=bound,
        )
        for title, measure in (("", "rows_per_second"), (", decoding alone", formats.DECODED))
        for name, bound in ((AVRO.name, 1.0), (PROTOBUF.name, 1.0), (NESTED_JSON.name, 0.8))
    ),
    Goal(
        "rows/s of a backlog of ten batches against one batch",
        BACKLOG,
        "rows/s",
        against=Source("backlog", "one_batch", "rows_per_second"),
        at_least=0.97,
    ),
    Goal(
        "the ledger's plan and publish, without Kafka: over 1M batches of 64 partitions against 1k",
        Source(BOOKKEEPING, "1m_batches", "seconds"),
        "s",
        against=Source(BOOKKEEPING, "1k_batches", "seconds"),
        at_most=1.2,
    ),
    Goal(
        "the ledger's plan and publish, without Kafka: a batch of 10,000 partitions",
        Source(BOOKKEEPING, "10k_partitions", "seconds"),
        "s",
        at_most=2.0,
    ),
    Goal(
        "the slowest page in Airflow, of 1,000 pipelines with 10,000 partitions and 1.1M batches",
        Source("pages", "slowest", "seconds"),
        "s",
        at_most=0.3,
    ),
    Goal("make demo, services running", Source("demo", "demo", "seconds"), "s", at_most=60.0),
)


def judge(figures: Figures) -> list[Verdict]:
    """Return every goal with its outcome, in the order of the README's table."""
    return [_judge(goal, figures) for goal in (*FIXED, *_memory_goals(figures))]


def _memory_goals(figures: Figures) -> Iterator[Goal]:
    """Return one goal for each program of the backlog's measurement."""
    # A shell starts the JVM; it lives for a moment and uses nothing.
    measures = dict.fromkeys(each.measure for each in figures.all if each.part == "backlog" and each.median)
    for measure in measures:
        if measure.endswith(MEMORY):
            yield Goal(
                f"peak memory of a backlog against one batch: {measure.removesuffix(MEMORY).replace('_', ', ')}",
                Source("backlog", "backlog", measure),
                "MiB",
                against=Source("backlog", "one_batch", measure),
                at_most=1.1,
            )


def _judge(goal: Goal, figures: Figures) -> Verdict:
    figure = goal.figure.find(figures)
    other = goal.against.find(figures) if goal.against else None
    ratios = _find_ratios(goal, figures)
    ratio = median(ratios) if ratios else figure / other if figure is not None and other else None
    judged = ratio if goal.against else figure
    if judged is None:
        outcome = Outcome.NOT_MEASURED
    else:
        is_met = (goal.at_most is None or judged <= goal.at_most) and (goal.at_least is None or judged >= goal.at_least)
        outcome = Outcome.MET if is_met else Outcome.MISSED
    return Verdict(goal, figure, other, ratio, ratios, outcome)


def _find_ratios(goal: Goal, figures: Figures) -> tuple[float, ...]:
    if goal.against is None or goal.figure.part != goal.against.part or goal.figure.part not in INTERLEAVED:
        return ()
    ours, others = goal.figure.values(figures), goal.against.values(figures)
    if len(ours) != len(others):
        return ()
    return tuple(sorted(one / other for one, other in zip(ours, others, strict=True)))
