"""The metrics: every number and no other, in both formats, and bounded; the rules and the board name what is there."""

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import yaml
from prometheus_client.exposition import choose_encoder
from prometheus_client.openmetrics import parser
from typer.testing import CliRunner

from batchledger.cli import app
from batchledger.interfaces.metrics.families import (
    Families,
    Look,
    build_families,
    build_partition_families,
)
from batchledger.interfaces.metrics.shipped import BOARD, RULES, read_shipped
from batchledger.interfaces.surveys import Standing
from batchledger.ledger.totals import NO_TOTALS, OFFSET_KINDS, PipelineTotals
from batchledger.lifecycle.platform import Deadlines
from batchledger.model.batch import BatchState, PartitionHealth, Step
from batchledger.model.findings import IncidentKind, PipelineState
from batchledger.model.offsets import TopicPartition
from batchledger.model.records.quarantine import ErrorKind, summarise
from batchledger.monitoring.health import PipelineHealth, Threats, find_threats
from batchledger.proof.watching import Discrepancy, WatchOutcome
from batchledger.watching.history import LookSummary
from tests.prometheus import list_expressions
from tests.unit.test_reference_pages import read, read_rows

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)
CANARY = "canary 4111-1111"
UNREAD = (
    PartitionHealth(TopicPartition("orders", 0), 10, 25, 25, NOON - HOUR, NOON + 3 * HOUR),
    PartitionHealth(TopicPartition("orders", 1), 7, 7, 7, None, None),
)
TOTALS = PipelineTotals(
    {BatchState.PUBLISHED: 40, BatchState.DISCARDED: 2},
    {**dict.fromkeys(OFFSET_KINDS, 0), "accepted": 1000, "duplicates": 5, "quarantined": 3},
    38,
    {Step.STAGE: 190.0, Step.AUDIT: 38.0, Step.PUBLISH: 19.0},
    unexplained_open=2,
    open_batches_by_state={BatchState.BLOCKED: 1},
    known_since=NOON - 9 * HOUR,
    published_at=NOON - 10 * MINUTE,
    incidents_by_kind={"blocked": 1, "check_failed": 2},
)
HEALTH = PipelineHealth(
    "orders",
    PipelineState.BLOCKED,
    f"batch 17 of orders: {CANARY}",
    find_threats(UNREAD, (), NOON),
    summarise([ErrorKind(f"no number: {CANARY}", 3)]),
)
ORDERS = Standing(HEALTH, deadlines=Deadlines(lag=10 * MINUTE, blocked=4 * HOUR), totals=TOTALS)
PAYMENTS = LookSummary(NOON - HOUR, WatchOutcome.WRONG, 30, 28, 28, 1, {Discrepancy.MISSING: 2})
LOOK = Look((ORDERS,), NOON - MINUTE, is_current=True, watches={"payments": PAYMENTS})

Series = Mapping[str, Mapping[tuple[str, ...], float]]


def write(look: Look, accept: str = "") -> str:
    encode, _ = choose_encoder(accept)
    return encode(Families([*build_families(look, NOON), *build_partition_families(look, NOON)])).decode()


def read_series(look: Look) -> Series:
    """The values of each series by its labels' values."""
    found: dict[str, dict[tuple[str, ...], float]] = {}
    for family in [*build_families(look, NOON), *build_partition_families(look, NOON)]:
        for each in family.samples:
            found.setdefault(each.name, {})[tuple(each.labels.values())] = each.value
    return found


def change(**health: object) -> Standing:
    return replace(ORDERS, health=replace(HEALTH, **health))


def test_every_number_of_a_pipeline_is_a_series() -> None:
    name = ("orders",)
    assert read_series(LOOK) == {
        "batchledger_up": {(): 1},
        "batchledger_look_timestamp_seconds": {(): (NOON - MINUTE).timestamp()},
        "batchledger_pipeline_state": {("orders", "blocked"): 1},
        "batchledger_lag_records": {name: 15},
        "batchledger_lag_seconds": {name: 3600},
        "batchledger_expiry_seconds": {name: 3 * 3600},
        "batchledger_deadline_seconds": {("orders", "lag"): 600, ("orders", "blocked"): 4 * 3600},
        "batchledger_quarantine_records": {name: 3},
        "batchledger_freshness_seconds": {name: 600},
        "batchledger_open_batches": {("orders", "blocked"): 1},
        "batchledger_batches_total": {("orders", "published"): 40, ("orders", "discarded"): 2},
        "batchledger_offsets_total": {("orders", kind): count for kind, count in TOTALS.offsets_by_kind.items()},
        "batchledger_unexplained_offsets": {name: 2},
        "batchledger_step_seconds_count": {("orders", step): 38 for step in Step},
        "batchledger_step_seconds_sum": {("orders", step): TOTALS.seconds_by_step[step] for step in Step},
        "batchledger_open_incidents": {("orders", "blocked"): 1, ("orders", "check_failed"): 2},
        "batchledger_watch_outcome": {("payments", "wrong"): 1},
        "batchledger_watch_offsets": {("payments",): 30},
        "batchledger_watch_proved_offsets": {("payments",): 28},
        "batchledger_watch_found": {("payments", "missing"): 2},
        "batchledger_watch_look_timestamp_seconds": {("payments",): (NOON - HOUR).timestamp()},
        "batchledger_partition_lag_records": {("orders", "orders", "0"): 15, ("orders", "orders", "1"): 0},
        "batchledger_partition_lag_seconds": {("orders", "orders", "0"): 3600, ("orders", "orders", "1"): 0},
    }


def test_number_that_is_not_known_has_no_sample() -> None:
    """Zero would say that all is well."""
    undated = replace(UNREAD[0], oldest_unread_at=None, expires_at=None)
    found = read_series(Look((change(threats=find_threats([undated], (), NOON)),), NOON, is_current=True))
    assert found["batchledger_lag_records"] == {("orders",): 15}
    missing = {"batchledger_lag_seconds", "batchledger_expiry_seconds", "batchledger_partition_lag_seconds"}
    assert missing & set(found) == set()
    silent = read_series(Look((change(state=PipelineState.UNKNOWN, threats=None),), NOON, is_current=True))
    assert "batchledger_lag_records" not in silent
    assert silent["batchledger_pipeline_state"] == {("orders", "unknown"): 1}
    without_ledger = read_series(Look((replace(ORDERS, totals=None),), NOON, is_current=True))
    assert "batchledger_lag_records" in without_ledger
    assert "batchledger_quarantine_records" not in without_ledger
    assert "batchledger_unexplained_offsets" not in without_ledger


def test_pipeline_without_unread_records_lags_by_nothing() -> None:
    calm = change(threats=Threats(0, (), None, None), state=PipelineState.CAUGHT_UP)
    found = read_series(Look((calm,), NOON, is_current=True))
    assert (found["batchledger_lag_records"], found["batchledger_lag_seconds"]) == ({("orders",): 0}, {("orders",): 0})
    assert "batchledger_expiry_seconds" not in found


def test_freshness_counts_from_the_first_plan_until_something_is_published() -> None:
    planned = replace(NO_TOTALS, known_since=NOON - HOUR)
    found = read_series(Look((replace(ORDERS, totals=planned),), NOON, is_current=True))
    assert found["batchledger_freshness_seconds"] == {("orders",): 3600}
    never = read_series(Look((replace(ORDERS, totals=NO_TOTALS),), NOON, is_current=True))
    assert "batchledger_freshness_seconds" not in never


def test_without_any_look_metrics_say_so_and_nothing_else() -> None:
    assert read_series(Look()) == {"batchledger_up": {(): 0}}


def test_look_that_failed_leaves_the_numbers_of_the_look_before_with_their_age() -> None:
    found = read_series(replace(LOOK, is_current=False))
    assert found["batchledger_up"] == {(): 0}
    assert found["batchledger_look_timestamp_seconds"] == {(): (NOON - MINUTE).timestamp()}
    assert found["batchledger_lag_records"] == {("orders",): 15}


def test_no_error_no_value_and_no_offset_is_in_a_label() -> None:
    """Only these labels, and only words of closed lists beside names."""
    assert CANARY not in write(LOOK)
    families = [*build_families(LOOK, NOON), *build_partition_families(LOOK, NOON)]
    closed = {
        "state": {*PipelineState, *BatchState},
        "step": {*Step},
        "kind": {*OFFSET_KINDS, *IncidentKind, "lag", "freshness", "blocked"},
        "pipeline": {"orders"},
        "watch": {"payments"},
        "outcome": {*WatchOutcome},
        "difference": {*Discrepancy},
        "topic": {"orders"},
        "partition": {"0", "1"},
    }
    for labels in (sample.labels for family in families for sample in family.samples):
        assert {name for name, value in labels.items() if value not in closed[name]} == set()


def test_openmetrics_and_prometheus_text_say_the_same_and_the_strict_parser_takes_them() -> None:
    text = write(LOOK, "application/openmetrics-text;version=1.0.0")
    assert text.endswith("# EOF\n")
    parsed = {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in parser.text_string_to_metric_families(text)
        for sample in family.samples
    }
    lines = [line for line in write(LOOK).splitlines() if not line.startswith("#")]
    assert len(lines) == len(parsed) == sum(map(len, read_series(LOOK).values()))


def make_many(pipelines: int, partitions: int) -> Look:
    """Many pipelines that all lag, each with names of ordinary length and with everything that has a series."""
    found = []
    for number in range(pipelines):
        name = f"warehouse_orders_{number:04d}"
        unread = [
            PartitionHealth(
                TopicPartition(name, each), 10**9, 10**9 + 123_456, 10**9 + 123_456, NOON - HOUR, NOON + HOUR
            )
            for each in range(partitions)
        ]
        health = replace(HEALTH, pipeline=name, threats=find_threats(unread, (), NOON))
        found.append(Standing(health, deadlines=Deadlines(HOUR, HOUR, HOUR), totals=TOTALS))
    return Look(tuple(found), NOON, is_current=True)


@pytest.mark.parametrize("accept", ["", "application/openmetrics-text;version=1.0.0"])
def test_thousand_pipelines_of_eleven_partitions_fit_into_five_megabytes(accept: str) -> None:
    """With each partition, and with two kinds of incidents open in each pipeline."""
    text = write(make_many(1_000, 11), accept)
    assert text.count("batchledger_partition_lag_records{") == 11_000
    assert len(text.encode()) <= 5_000_000


def list_names() -> dict[str, str]:
    """Every series with its labels, as the documentation writes them."""
    families = [*build_families(LOOK, NOON), *build_partition_families(LOOK, NOON)]
    return {each.name: ", ".join(each.labels) or "none" for family in families for each in family.samples}


def test_every_series_is_on_the_page_of_the_documentation_with_its_labels() -> None:
    rows = read_rows(read("guides/metrics.md"), "## Every metric")
    told = {name: row[1].replace("`", "") for row in rows for name in re.findall(r"`(\w+)`", row[0])}
    assert told == list_names()


def find_unknown(expressions: list[str]) -> set[str]:
    """The names in expressions that no series has."""
    named = {name for each in expressions for name in re.findall(r"\bbatchledger_\w+", each)}
    assert named
    return named - set(list_names())


def test_every_rule_is_about_metrics_that_exist_and_says_what_to_do() -> None:
    rules = [rule for group in yaml.safe_load(read_shipped(RULES))["groups"] for rule in group["rules"]]
    assert find_unknown([rule["expr"] for rule in rules]) == set()
    assert [rule["alert"] for rule in rules if not re.search(r"batchledger \w+|See ", _told(rule))] == []
    assert {rule["labels"]["severity"] for rule in rules} == {"critical", "warning"}


def _told(rule: Mapping[str, Mapping[str, str]]) -> str:
    return rule["annotations"]["description"]


def test_every_expression_of_the_board_is_about_metrics_that_exist() -> None:
    board = json.loads(read_shipped(BOARD))
    expressions = list_expressions(board)
    assert len(expressions) == len(board["panels"]) > 10
    query = next(each["query"]["query"] for each in board["templating"]["list"] if each["name"] == "pipeline")
    assert find_unknown([*expressions, query]) == set()


def test_panels_of_the_board_have_their_own_ids_and_places() -> None:
    panels = json.loads(read_shipped(BOARD))["panels"]
    assert len({each["id"] for each in panels}) == len(panels)
    taken = [
        (x, y)
        for place in (each["gridPos"] for each in panels)
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(set(taken)) == len(taken)
    assert max(x for x, _ in taken) < 24


def run(*arguments: str, folder: Path) -> tuple[int, str]:
    """Run the command without any pipeline."""
    folder.mkdir(exist_ok=True)
    done = CliRunner().invoke(app, ["metrics", *arguments], env={"BATCHLEDGER_PIPELINES": str(folder)})
    return done.exit_code, done.output if done.exception is None else f"{done.output}{done.exception}"


def test_command_prints_what_is_shipped(tmp_path: Path) -> None:
    assert run("--rules", folder=tmp_path) == (0, read_shipped(RULES))
    assert run("--board", folder=tmp_path) == (0, read_shipped(BOARD))


def test_textfile_is_written_whole_for_the_node_exporter(tmp_path: Path) -> None:
    file = tmp_path / "batchledger.prom"
    assert run("--textfile", str(file), folder=tmp_path / "pipelines") == (0, "")
    assert "batchledger_up 1.0\n" in file.read_text()
    assert "# EOF" not in file.read_text()
    assert [each.name for each in tmp_path.iterdir() if each.is_file()] == ["batchledger.prom"]
    before = file.read_text()
    code, told = run("--textfile", str(tmp_path / "none" / "a.prom"), folder=tmp_path / "pipelines")
    assert (code, "cannot be written" in told, file.read_text() == before) == (1, True, True)
    code, told = run("--textfile", str(tmp_path / "batchledger.txt"), folder=tmp_path / "pipelines")
    assert (code, ".prom" in told) == (2, True)
