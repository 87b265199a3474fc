"""When a record was first seen follows from what a reader saw at each look."""

import pytest

from bench.parts.airflow_trigger import find_hops
from bench.parts.latency import Look, find_delays

LOOKS = [Look(1000, {}), Look(1050, {0: 1}), Look(1100, {0: 1, 1: 2}), Look(1150, {0: 3, 1: 2})]


def test_record_is_visible_at_the_first_look_that_found_its_offset_or_a_later_one() -> None:
    times = {0: [990.0, 1010.0, 1140.0], 1: [1000.0, 1090.0]}
    assert find_delays(LOOKS, times) == [60.0, 140.0, 10.0, 100.0, 10.0]


def test_record_that_nobody_has_seen_is_an_error() -> None:
    with pytest.raises(IndexError):
        find_delays(LOOKS, {0: [990.0] * 4})


def test_way_of_a_trigger_adds_up_to_the_end_of_publish() -> None:
    times = {"plan": (101.0, 102.0), "stage": (102.5, 104.0), "audit": (104.0, 105.0), "publish": (105.5, 106.0)}
    hops = find_hops(100.0, 100.25, times)
    assert hops["until_run_seconds"] == 0.25
    assert hops["until_plan_seconds"] == 0.75
    assert hops["publish_seconds"] == 0.5
    assert sum(hops.values()) == 6.0
