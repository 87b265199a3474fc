"""What the bench sends to a program arrives as it was meant, and which parts a person may choose."""

import pytest
import typer

from bench.__main__ import PARTS, PARTS_IF_SMALL, Scale, Settings, choose_parts
from bench.orders import Order, Sink
from bench.records import describe


def test_order_survives_the_way_to_the_program() -> None:
    order = Order("loop_1", "orders", "loop_1", {0: 10, 3: 7}, {"delivery": "exactly_once"}, Sink.KAFKA)
    assert Order.from_json(order.to_json()) == order
    assert order.records == 17


def test_message_ids_are_distinct_since_lost_and_doubled_rows_are_told_by_them() -> None:
    assert len({describe(number)[:60] for number in range(10_000)}) == 10_000


def test_chosen_parts_run_in_their_own_order() -> None:
    assert choose_parts("kills, throughput", is_small=False) == ("throughput", "kills")
    assert choose_parts(None, is_small=False) == PARTS
    assert choose_parts(None, is_small=True) == PARTS_IF_SMALL


def test_unknown_part_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(typer.BadParameter, match="no part speed; there are throughput"):
        choose_parts("throughput,speed", is_small=False)


def test_what_is_not_given_follows_from_the_scale() -> None:
    assert Settings.choose(Scale.SMALL, None, None).records == 100_000
    assert Settings.choose(Scale.SMALL, 5000, None).records == 5000
    assert (Settings.choose(Scale.FULL, None, None).records, Settings.choose(Scale.FULL, None, None).rounds) == (
        2_000_000,
        5,
    )
