"""The checker names every kind of difference between log and target, and nothing else."""

from dataclasses import fields, replace
from datetime import UTC, datetime, timedelta

import pytest

from batchledger.local.torture.checker import Differences, Row, compare
from batchledger.local.torture.records import IntendedRecord

LOG = {
    (offset % 2, offset): IntendedRecord.make(f"id{offset}", f"key{offset % 2}", sequence=offset // 2)
    for offset in range(6)
}


def moment(number: int) -> datetime:
    """When the commit of this number made its rows visible."""
    return datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=number)


ROWS = [Row(record, "topic", partition, offset, moment(offset // 2)) for (partition, offset), record in LOG.items()]
KINDS = ("lost", "duplicated", "phantom", "out_of_order", "wrong_value", "broker_lost", "not_set_aside")


def found(rows: list[Row], acknowledged: tuple[str, ...] = (), failed: tuple[str, ...] = ()) -> dict[str, list[str]]:
    """The differences that are not empty."""
    differences = compare("topic", LOG, rows, acknowledged, failed=failed)
    return {kind: list(getattr(differences, kind)) for kind in KINDS if getattr(differences, kind)}


def test_log_and_target_agree() -> None:
    assert compare("topic", LOG, ROWS, [each.record_id for each in LOG.values()]) == Differences(
        records=6,
        rows=6,
        lost=[],
        duplicated=[],
        phantom=[],
        out_of_order=[],
        wrong_value=[],
        broker_lost=[],
        not_set_aside=[],
    )


def test_every_kind_of_difference_is_tested_here() -> None:
    """S107."""
    assert {each.name for each in fields(Differences)} - {"records", "rows"} == set(KINDS)


def test_record_without_a_row_is_lost() -> None:
    """S107."""
    assert found(ROWS[1:]) == {"lost": ["id0"]}


def test_record_with_two_rows_is_duplicated() -> None:
    """S107."""
    again = replace(ROWS[0], appeared=moment(9))
    assert found([*ROWS, again]) == {"duplicated": ["id0"]}


def test_record_that_the_log_holds_twice_may_be_there_twice() -> None:
    log = {**LOG, (0, 6): LOG[0, 0]}
    differences = compare("topic", log, [*ROWS, replace(ROWS[0], offset=6, appeared=moment(9))], ())
    assert (differences.lost, differences.duplicated) == ([], [])


def test_row_of_an_aborted_record_is_a_phantom() -> None:
    """S107."""
    aborted = Row(IntendedRecord.make("aborted", "key9", 0), "topic", 0, 99, moment(1))
    assert found([*ROWS, aborted]) == {"phantom": ["aborted"]}
    assert found([*ROWS, aborted], failed=("aborted",)) == {"phantom": ["aborted"]}


def test_record_that_was_aborted_and_is_in_log_and_target_is_a_phantom() -> None:
    """S107."""
    assert found(ROWS, failed=("id0", "aborted")) == {"phantom": ["id0"]}


def test_record_that_arrives_behind_a_later_one_of_its_key_is_out_of_order() -> None:
    """S107."""
    late = [replace(each, appeared=moment(7)) if each.record.record_id == "id0" else each for each in ROWS]
    assert found(late) == {"out_of_order": ["id0"]}


def test_repeating_a_batch_is_no_disorder() -> None:
    """What at_least_once may do: the first arrivals are in order."""
    repeated = [replace(each, appeared=each.appeared + timedelta(seconds=3)) for each in ROWS]
    assert set(found([*ROWS, *repeated])) == {"duplicated"}


@pytest.mark.parametrize("change", [{"payload": "other"}, {"sequence": 77}])
def test_row_that_is_not_what_the_log_holds_has_a_wrong_value(change: dict[str, object]) -> None:
    """S107."""
    changed = replace(ROWS[5], record=replace(ROWS[5].record, **change))  # type: ignore[arg-type]
    assert found([*ROWS[:5], changed]) == {"wrong_value": ["id5"]}


def test_acknowledged_record_that_the_log_does_not_hold_is_the_brokers_loss() -> None:
    """S107."""
    assert found(ROWS, ("id0", "gone")) == {"broker_lost": ["gone"]}


@pytest.mark.parametrize("set_aside", [{}, {(0, 8): b"other bytes"}, {(1, 8): b"{"}])
def test_poison_record_that_quarantine_does_not_hold_with_its_bytes_is_not_set_aside(
    set_aside: dict[tuple[int, int], bytes],
) -> None:
    poison = {(0, 8): b"{"}
    differences = compare("topic", LOG, ROWS, (), poison=poison, set_aside=set_aside)
    assert differences.not_set_aside == ["topic[0]@8"]
    assert compare("topic", LOG, ROWS, (), poison=poison, set_aside=poison).not_set_aside == []


@pytest.mark.parametrize("change", [{"topic": "other"}, {"offset": 99}, {"partition": 0}])
def test_row_that_names_another_place_than_its_record_has_in_the_log_is_wrong(change: dict[str, object]) -> None:
    moved = replace(ROWS[5], **change)  # type: ignore[arg-type]
    assert found([*ROWS[:5], moved]) == {"wrong_value": ["id5"]}
