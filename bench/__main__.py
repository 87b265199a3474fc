"""``make bench``: take the measurements part by part, then write and print the results."""

import signal
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Self

import typer
from rich.console import Console
from rich.markdown import Markdown

from batchledger.local.stack.home import Home
from batchledger.local.stack.jars import fetch_jars
from bench import report
from bench.about import About, describe_code
from bench.bench import RECORDS, ROUNDS, Bench, Say
from bench.contenders import available_now, batchledger, debezium, hand_written_loop, iceberg_sink, limits
from bench.contenders.contender import Contender
from bench.figures import Figure, Figures
from bench.orders import Sink
from bench.parts import (
    airflow_trigger,
    audit_cost,
    backlog,
    bookkeeping,
    demo,
    formats,
    kills,
    latency,
    pages,
    scaling,
    starts,
    throughput,
    types,
    watched,
)
from bench.records import Topic, write_topic
from bench.services import run_services

RECORDS_IF_SMALL = 100_000
ROUNDS_IF_SMALL = 1
WARM_UP_RECORDS, WARM_UP_RECORDS_IF_SMALL = 200_000, 20_000
KILLED_RECORDS, KILLED_RECORDS_IF_SMALL = 200_000, 50_000
LOOP_RECORDS, TRIGGER_RECORDS = 100, 10_000


class Scale(StrEnum):
    """How much is measured. ``small`` leaves parts out and shows within five minutes that the bench works."""

    FULL = "full"
    SMALL = "small"


@dataclass(frozen=True)
class Settings:
    """How much is measured, and how often."""

    records: int
    rounds: int
    warm_up_records: int
    is_small: bool

    @classmethod
    def choose(cls, scale: Scale, records: int | None, rounds: int | None) -> Self:
        """Return the size of a run; the scale gives the values that are None."""
        if scale is Scale.SMALL:
            return cls(records or RECORDS_IF_SMALL, rounds or ROUNDS_IF_SMALL, WARM_UP_RECORDS_IF_SMALL, is_small=True)
        return cls(records or RECORDS, rounds or ROUNDS, WARM_UP_RECORDS, is_small=False)


def list_contenders(records: int) -> list[Contender]:
    """All contenders, Batchledger first; its batch is the whole topic."""
    ours = [batchledger.describe(delivery, records) for delivery in ("exactly_once", "at_least_once")]
    return [*ours, available_now.describe(), hand_written_loop.describe(), debezium.describe()]


def list_without_modes(records: int) -> list[Contender]:
    """All contenders, Batchledger in its default mode only."""
    return [each for each in list_contenders(records) if each.subject.name != "at_least_once"]


def list_pairs(records: int) -> list[Contender]:
    """Batchledger and Spark's own sink, for each target that is no table."""
    ours = {sink: batchledger.describe_into(sink, records) for sink in Sink if sink is not Sink.POSTGRES}
    return [each for sink in ours for each in (ours[sink], available_now.describe(sink))]


def list_watched() -> list[Contender]:
    """Writers of others. Small commits let more kills fall between two of them."""
    return [
        hand_written_loop.describe().with_settings({"records_per_commit": str(LOOP_RECORDS)}),
        hand_written_loop.describe_offsets_first().with_settings({"records_per_commit": str(LOOP_RECORDS)}),
        available_now.describe().with_settings({"records_per_commit": str(TRIGGER_RECORDS)}),
        debezium.describe(),
        iceberg_sink.describe(),
        iceberg_sink.describe_from_earliest(),
    ]


def list_titles() -> dict[str, str]:
    """The titles of all contenders and limits."""
    contenders = [each.subject for each in (*list_contenders(1), *list_pairs(1), *list_watched())]
    return {each.name: each.title for each in (*contenders, *limits.describe())}


def measure_throughput(bench: Bench, chosen: Collection[str]) -> Iterator[Figure]:
    """Contenders and limits in the same rounds."""
    contenders = list_contenders(bench.topic.records) if throughput.PART in chosen else []
    return throughput.measure(bench, contenders, with_limits=throughput.LIMITS in chosen)


def measure_sinks(bench: Bench) -> Iterator[Figure]:
    """The pairs in the same rounds."""
    return throughput.measure(bench, list_pairs(bench.topic.records), part=throughput.SINKS)


def measure_latency(bench: Bench) -> Iterator[Figure]:
    """All contenders, Batchledger in the mode that matters."""
    return latency.measure(bench, list_without_modes(bench.topic.records))


def write_killed_topic(bench: Bench, name: str) -> Topic:
    """Write a topic that is large enough for kills and small enough to compare."""
    records = KILLED_RECORDS_IF_SMALL if bench.is_small else KILLED_RECORDS
    return write_topic(bench.services, min(records, bench.topic.records), name)


def measure_watched(bench: Bench) -> Iterator[Figure]:
    """All writers of others. Iceberg's sink commits all that it has read in a second: it gets the whole topic."""
    topic, seed = write_killed_topic(bench, watched.PART), time.time_ns() % 1_000_000
    for each in list_watched():
        yield from watched.measure(bench, each, bench.topic if each.subject.sink is Sink.ICEBERG else topic, seed)


def measure_kills(bench: Bench) -> Iterator[Figure]:
    """All contenders."""
    topic = write_killed_topic(bench, kills.PART)
    contenders = [kills.in_batches(each, topic.records) for each in list_without_modes(topic.records)]
    return kills.measure(bench, contenders, topic, seed=time.time_ns() % 1_000_000)


# In this order, after throughput and limits, which share rounds, and before the demo, which has its own services.
MEASURE_BY_PART: Mapping[str, Callable[[Bench], Iterator[Figure]]] = {
    throughput.SINKS: measure_sinks,
    latency.PART: measure_latency,
    kills.PART: measure_kills,
    watched.PART: measure_watched,
    audit_cost.PART: audit_cost.measure,
    backlog.PART: backlog.measure,
    scaling.PART: scaling.measure,
    types.PART: types.measure,
    formats.PART: formats.measure,
    airflow_trigger.PART: airflow_trigger.measure,
    starts.PART: starts.measure,
    pages.PART: pages.measure,
    bookkeeping.PART: bookkeeping.measure,
}
ROUNDS_TOGETHER = (throughput.PART, throughput.LIMITS)
PARTS = (*ROUNDS_TOGETHER, *MEASURE_BY_PART, demo.PART)
PARTS_WITH_CONNECT = frozenset({throughput.PART, latency.PART, kills.PART, watched.PART})
# The other parts take longer than the five minutes of the small scale.
PARTS_IF_SMALL = (*ROUNDS_TOGETHER, throughput.SINKS, latency.PART)


def measure(chosen: Collection[str], settings: Settings, say: Say) -> Iterator[Figure]:
    """Take the chosen parts in their order; say before each which parts are left."""
    pending = [part for part in PARTS if part in chosen]

    def announce(part: str) -> None:
        pending[:] = [each for each in pending if each not in {part, *ROUNDS_TOGETHER}]
        say(f"[bold]{part}[/]; to come: {', '.join(pending) or 'nothing'}")

    if set(pending) - {demo.PART}:
        if not PARTS_WITH_CONNECT.isdisjoint(chosen):
            say("fetching the jars of Kafka Connect; the first time it takes a minute")
            fetch_jars(Home.of_project(), "connect")
        if watched.PART in chosen:
            fetch_jars(Home.of_project(), "connect_iceberg")
        say("starting the services")
        with run_services() as services:
            topic = write_topic(services, settings.records)
            warm_up = write_topic(services, min(settings.warm_up_records, settings.records), "warm_up")
            bench = Bench(services, topic, warm_up, settings.rounds, settings.is_small, say)
            if not set(ROUNDS_TOGETHER).isdisjoint(chosen):
                announce(" and ".join(part for part in ROUNDS_TOGETHER if part in chosen))
                yield from measure_throughput(bench, chosen)
            for part, take in MEASURE_BY_PART.items():
                if part in chosen:
                    announce(part)
                    yield from take(bench)
    if demo.PART in chosen:
        announce(demo.PART)
        yield from demo.measure(settings.rounds, say)


def find_unfinished(found: Sequence[Figure]) -> frozenset[str]:
    """Return what a run was at when it ended early: parts that share rounds end together."""
    last = frozenset(each.part for each in found[-1:])
    return last if last.isdisjoint(ROUNDS_TOGETHER) else frozenset(ROUNDS_TOGETHER)


def read_earlier(folder: Path, settings: Settings) -> list[Figure]:
    """Return the figures of a run's whole parts. Raises typer.BadParameter if they cannot stand beside new ones."""
    about, found = report.read(folder)
    if (about.code, about.records, about.rounds) != (describe_code(), settings.records, settings.rounds):
        raise typer.BadParameter(
            f"{folder} has {about.records} records, {about.rounds} rounds, and code of {about.code}"
        )
    return found


def choose_parts(only: str | None, *, is_small: bool) -> tuple[str, ...]:
    """Return the chosen parts. Raises typer.BadParameter with the names of all parts."""
    if only is None:
        return PARTS_IF_SMALL if is_small else PARTS
    wanted = [each.strip() for each in only.split(",")]
    unknown = sorted(set(wanted) - set(PARTS))
    if unknown:
        raise typer.BadParameter(f"there is no part {', '.join(unknown)}; there are {', '.join(PARTS)}")
    return tuple(part for part in PARTS if part in wanted)


def main(
    *,
    scale: Annotated[Scale, typer.Option(help="small: 100,000 records, one round, five minutes.")] = Scale.FULL,
    records: Annotated[int | None, typer.Option(min=1000, help="How many records the topic has.")] = None,
    rounds: Annotated[int | None, typer.Option(min=1, help="How often each measurement is taken.")] = None,
    only: Annotated[str | None, typer.Option(help=f"Parts, with commas between: {', '.join(PARTS)}.")] = None,
    after: Annotated[Path | None, typer.Option(help="Results of an earlier run; take its missing parts.")] = None,
    publish: Annotated[bool, typer.Option(help="Put table and plot where the READMEs show them.")] = False,
) -> None:
    """Compare Batchledger with what a user could run instead, and with the limits of this machine."""
    # SIGTERM ends the services, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    console, started = Console(), time.monotonic()
    settings = Settings.choose(scale, records, rounds)
    earlier = read_earlier(after, settings) if after else []
    taken = {each.part for each in earlier}
    chosen = [part for part in choose_parts(only, is_small=settings.is_small) if part not in taken]
    left_out = [part for part in PARTS if part not in taken.union(chosen)]
    if publish and (settings != Settings.choose(Scale.FULL, None, None) or left_out):
        raise typer.BadParameter("publish a whole run only: all parts, with all their records and rounds")

    def say(text: str) -> None:
        minutes, seconds = divmod(int(time.monotonic() - started), 60)
        console.print(f"[dim]{minutes:3d}:{seconds:02d}[/] {text}", highlight=False, soft_wrap=True)

    if left_out:
        say(f"left out: {', '.join(left_out)}")
    found: list[Figure] = []
    is_whole = False
    try:
        for figure in measure(chosen, settings, say):
            found.append(figure)  # noqa: PERF402 - one by one, so that they are there when the next one fails
        is_whole = True
    finally:
        # If something fails, the measurements before it are kept: they may have taken an hour.
        folder = write_report(Figures.collect([*earlier, *found]), settings, [] if is_whole else find_unfinished(found))
        console.print(Markdown((folder / "table.md").read_text()))
        say(f"written to {folder}")
    if publish:
        report.publish(folder)


def write_report(figures: Figures, settings: Settings, unfinished: Collection[str]) -> Path:
    """Write the results; return the folder."""
    measured = {each.part for each in figures.all}.difference(unfinished)
    left_out = [part for part in PARTS if part not in measured]
    about = About.now(settings.records, settings.rounds, sorted(measured), left_out)
    return report.write(figures, list_titles(), about)


if __name__ == "__main__":
    typer.run(main)
