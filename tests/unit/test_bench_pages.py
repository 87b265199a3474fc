"""The pages' part of the bench: what it writes is what the product reads, and its figures lead to the right verdict."""

from pathlib import Path

import pytest

from batchledger.config.pipeline_file import read_pipeline_file
from bench.figures import Figure, Figures
from bench.goals import Outcome, judge
from bench.many_pipelines import PARTITIONS_CREATED_AT_ONCE, ManyPipelines, _group, write_files
from bench.parts.pages import MANY
from bench.report import to_markdown
from tests.unit.test_bench_report import ABOUT

FEW = ManyPipelines(ordinary=3, batches=2, partitions=10, long_batches=9, wide_partitions=50, wide_batches=1)


def test_whole_run_has_the_pipelines_partitions_and_batches_that_the_goal_names() -> None:
    assert len(MANY.histories) == 1_000
    assert MANY.all_partitions >= 10_000
    assert MANY.all_batches >= 1_100_000 * 0.999
    assert max(each.batches for each in MANY.histories) == 1_000_000


def test_every_pipeline_file_is_one_that_the_product_takes(tmp_path: Path) -> None:
    write_files(tmp_path, FEW)
    read = [read_pipeline_file(path) for path in sorted(tmp_path.glob("*.yaml"))]
    assert sorted(each.name for each in read) == sorted(each.pipeline for each in FEW.histories)
    assert {topic for each in read for topic in each.source.topics} == {each.topic for each in FEW.histories}


def test_topics_are_created_in_as_many_requests_as_a_controller_takes_and_none_is_left_out() -> None:
    groups = list(_group(MANY.histories))
    assert [each for group in groups for each in group] == list(MANY.histories)
    assert all(sum(each.partitions for each in group) <= PARTITIONS_CREATED_AT_ONCE for group in groups)


@pytest.mark.parametrize(("slowest", "outcome"), [((0.2, 0.3, 0.9), Outcome.MET), ((0.2, 0.31, 0.9), Outcome.MISSED)])
def test_median_of_the_slowest_page_decides(slowest: tuple[float, ...], outcome: Outcome) -> None:
    figures = Figures((Figure("pages", "slowest", "seconds", slowest),))
    (found,) = (each for each in judge(figures) if "slowest page" in each.goal.title)
    assert found.outcome is outcome


def test_table_gives_the_median_of_each_moment_and_the_largest_of_all() -> None:
    moments = {"cold": (0.2, 0.4, 0.3), "warm": (0.05, 0.04, 0.06), "busy": (0.1, 0.1, 0.5), "cpu": (0.03,)}
    figures = Figures(
        (
            *(Figure("pages", "all pipelines", f"{moment}_seconds", values) for moment, values in moments.items()),
            Figure("pages", "slowest", "seconds", (0.2, 0.4, 0.5)),
            Figure("pages", "a look at all pipelines", "cpu_seconds", (0.6,)),
        )
    )
    text = to_markdown(figures, judge(figures), {}, ABOUT)
    assert "| all pipelines | 300 ms | 50 ms | 100 ms | 500 ms | 30 ms |" in text
    assert "| a look at all pipelines | cpu seconds | 0.60 s |" in text
    assert "| slowest |" not in text
