"""The counting of offsets and the judgement of a look, as properties over tables and logs that chance makes."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from functools import reduce
from operator import xor
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchledger.config.watch_file import WatchConfig, read_watch_file
from batchledger.ledger.watches import read_look, write_look
from batchledger.model.balance import HoleEvidence, HolePolicy
from batchledger.model.errors import ConfigurationError, FileRefusedError
from batchledger.model.offsets import OffsetRange, TopicPartition, count_offsets, merge_ranges, single_offset
from batchledger.proof.parts import Fingerprint, Part
from batchledger.proof.watching import (
    ComparedTable,
    Discrepancy,
    Frame,
    Judgement,
    PartitionStanding,
    TableCount,
    TableLook,
    WatchedPartition,
    WatchOutcome,
    judge_look,
    lay_frame,
    name_outcome,
    tell,
)
from batchledger.watching.counting import MOST_OFFSETS, OffsetCounter, pack
from batchledger.watching.fingerprints import compare_hashes
from batchledger.watching.look import choose_again, note_losses
from batchledger.watching.table import coarsen
from tests.conftest import ROOT

ORDERS = TopicPartition("orders", 0)
END = 200
OFFSETS = st.integers(0, END - 1)
KINDS = st.sampled_from(["record", "aborted", "marker"])
NEW = WatchedPartition(ORDERS, "id", 0)


def ranges_of(offsets: Sequence[int]) -> list[OffsetRange]:
    return merge_ranges(single_offset("orders", 0, each) for each in offsets)


def offsets_of(ranges: Sequence[OffsetRange]) -> set[int]:
    return {offset for each in ranges for offset in range(each.start, each.until)}


def count(rows: Sequence[int], parts: int = 1) -> TableCount:
    """Count rows that come in parts."""
    counter = OffsetCounter([OffsetRange(ORDERS, 0, END)])
    for part in range(parts):
        some = rows[part::parts]
        counter.add(pack("orders", np.zeros(len(some), int), np.array(some, int)))
    doubtful = offsets_of(counter.find_doubtful())
    repeated = [each for each, times in Counter(rows).items() if times > 1]
    assert set(repeated) <= doubtful
    assert repeated or not doubtful
    return counter.finish(ranges_of(repeated), {ORDERS: END})


def judge(
    known: WatchedPartition,
    rows: Iterable[int],
    evidence: HoleEvidence,
    policy: HolePolicy = HolePolicy.TRANSACTIONAL,
    recheck: Sequence[OffsetRange] = (),
) -> Judgement:
    """Judge a look at all of the partition."""
    compared = ComparedTable([lay_frame(known, END, END, recheck)], count(list(rows)))
    judged = judge_look(compared, evidence, policy)
    found = name_found(judged)
    assert {each.difference: each.count for each in judged.found} == {kind: len(each) for kind, each in found.items()}
    assert offsets_of(judged.proved).isdisjoint(set().union(*found.values()))
    return judged


def name_found(judged: Judgement) -> dict[Discrepancy, set[int]]:
    return {each.difference: offsets_of(each.ranges) for each in judged.found}


@given(st.lists(OFFSETS), st.integers(1, 5))
def test_counter_finds_exactly_the_offsets_of_the_rows_however_they_come(rows: list[int], parts: int) -> None:
    assert offsets_of(count(rows, parts).held) == set(rows)


@given(st.lists(KINDS, min_size=END, max_size=END), st.lists(OFFSETS, max_size=300))
def test_everything_is_proved_but_what_a_naive_comparison_finds(log: list[str], rows: list[int]) -> None:
    times = Counter(rows)
    records = {offset for offset, kind in enumerate(log) if kind == "record"}
    aborted = {offset for offset, kind in enumerate(log) if kind == "aborted"}
    wanted = {
        Discrepancy.MISSING: records - set(rows),
        Discrepancy.TWICE: {each for each, found in times.items() if found > 1},
        Discrepancy.UNCOMMITTED: aborted & set(rows),
        Discrepancy.UNKNOWN: set(rows) - records - aborted,
    }
    evidence = HoleEvidence(
        tuple(ranges_of(list(records))), tuple(ranges_of(list(records | aborted))), {ORDERS: 0}, frozenset()
    )
    judged = judge(NEW, rows, evidence)
    found = name_found(judged)
    assert found == {kind: offsets for kind, offsets in wanted.items() if offsets}
    assert offsets_of(judged.proved) == set(range(END)) - set().union(*wanted.values())
    assert name_outcome(judged.found) is (WatchOutcome.WRONG if found else WatchOutcome.PROVED)


@pytest.mark.parametrize(("held", "outcome"), [([], WatchOutcome.CANNOT_SAY), ([0], WatchOutcome.WRONG)])
def test_nothing_is_missing_if_coordinates_lead_to_nothing_in_any_row(held: list[int], outcome: WatchOutcome) -> None:
    counted = TableCount(tuple(ranges_of(held)), stray=5)
    known = OffsetRange(ORDERS, 0, END)
    compared = ComparedTable([lay_frame(NEW, END, END, ())], counted)
    judged = judge_look(compared, HoleEvidence((known,), (known,), {ORDERS: 0}, frozenset()), HolePolicy.TRANSACTIONAL)
    assert name_outcome(judged.found) is outcome
    assert (Discrepancy.MISSING in name_found(judged), bool(note_losses(compared))) == (bool(held), not held)


@given(st.sets(OFFSETS), st.sets(OFFSETS), st.sets(OFFSETS))
def test_row_that_was_seen_once_is_deleted_and_never_explained(
    seen: set[int], rows: set[int], proved: set[int]
) -> None:
    """Whatever Kafka has of it by now: here nothing at all."""
    known = WatchedPartition(ORDERS, "id", 0, tuple(ranges_of(list(proved | seen))), tuple(ranges_of(list(seen))))
    judged = judge(known, rows, GONE, HolePolicy.NONE, known.proved)
    found = name_found(judged)
    assert found.get(Discrepancy.DELETED, set()) == seen - rows
    assert found.get(Discrepancy.UNKNOWN, set()) == (rows - seen) & (proved | seen)
    assert offsets_of(judged.withdrawn) == (seen - rows) | ((rows - seen) & proved)


@given(st.sets(OFFSETS), st.integers(0, END))
def test_row_whose_record_is_gone_before_it_was_proved_is_not_proved(rows: set[int], log_start: int) -> None:
    """If the topic may have aborted records, the row may be of one."""
    left = [each for each in range(log_start, END) if each in rows]
    evidence = HoleEvidence(tuple(ranges_of(left)), tuple(ranges_of(left)), {ORDERS: log_start}, frozenset())
    assert name_found(judge(NEW, rows, evidence)).get(Discrepancy.EXPIRED, set()) == set(range(log_start))
    declared = judge(NEW, rows, evidence, HolePolicy.NONE)
    assert {each for each in rows if each < log_start} <= offsets_of(declared.proved)


GONE = HoleEvidence((), (), {ORDERS: END}, frozenset())
COMPACTED_AWAY = HoleEvidence((), (), {ORDERS: 0}, frozenset({"orders"}))
UNREADABLE = HoleEvidence((), (), {ORDERS: 0}, frozenset(), frozenset({"orders"}))


@given(st.sets(OFFSETS), st.sets(OFFSETS), st.sampled_from([GONE, COMPACTED_AWAY, UNREADABLE]))
def test_what_was_wrong_once_stays_wrong_when_kafka_has_removed_what_it_had_there(
    missing: set[int], rows: set[int], evidence: HoleEvidence
) -> None:
    known = WatchedPartition(ORDERS, "id", 0, (), (), tuple(ranges_of(list(missing))), tuple(ranges_of(list(rows))))
    found = name_found(judge(known, rows, evidence))
    assert found.get(Discrepancy.MISSING, set()) == missing - rows
    assert found.get(Discrepancy.UNKNOWN, set()) == rows
    # The rows have come, or gone: what was known of these offsets is enough.
    mended = judge(known, missing - rows, evidence)
    assert (missing - rows) | (rows - missing) <= offsets_of(mended.proved)


def test_compaction_explains_nothing_of_a_topic_that_is_not_declared_as_compacted() -> None:
    for rows in ([], range(END)):
        assert name_found(judge(NEW, rows, COMPACTED_AWAY)) == {Discrepancy.UNDECLARED: set(range(END))}
        assert name_found(judge(NEW, rows, COMPACTED_AWAY, HolePolicy.COMPACTED)) == {}


def test_rows_at_no_record_of_a_topic_whose_settings_may_not_be_read_are_not_proved() -> None:
    assert name_found(judge(NEW, range(5, 9), UNREADABLE))[Discrepancy.UNCLEAR] == set(range(END))
    assert name_found(judge(NEW, range(5, 9), UNREADABLE, HolePolicy.COMPACTED)) == {}


class HashedRows:
    """Rows by their offsets, with a value each, as a table that can hash them."""

    def __init__(self, values: dict[int, int]) -> None:
        self.values = values

    def fingerprint(self, ranges: Sequence[OffsetRange]) -> list[int]:
        return [
            reduce(xor, (hash((at, self.values[at])) for at in offsets_of([each]) & self.values.keys()), 0)
            for each in ranges
        ]


@given(
    st.dictionaries(OFFSETS, st.integers(0, 3)),
    st.lists(st.tuples(st.sampled_from(["change", "delete", "restore", "add"]), OFFSETS), max_size=12),
)
def test_rows_count_as_changed_exactly_while_they_are_not_as_they_were_proved(
    first: dict[int, int], acts: list[tuple[str, int]]
) -> None:
    """Also if rows of the same part go and come back meanwhile."""
    proved_as, rows, prints = dict[int, int](), dict(first), dict[Part, Fingerprint]()
    for act, at in [("look", 0), *acts]:
        if act == "change" and at in rows:
            rows[at] += 1
        elif act == "delete":
            rows.pop(at, None)
        elif act == "restore" and at in proved_as:
            rows[at] = proved_as[at]
        elif act == "add" and at not in proved_as:
            rows[at] = 7
        held = ranges_of(list(proved_as))
        gone = tell(Discrepancy.DELETED, ranges_of(list(proved_as.keys() - rows.keys())))
        asked, present = (OffsetRange(ORDERS, 0, END),), tuple(ranges_of(list(rows)))
        judgement = Judgement(asked=asked, proved=(), held=present, withdrawn=(), found=(gone,))
        found, changed = compare_hashes(HashedRows(rows), prints, held, judgement)  # type: ignore[arg-type]
        prints |= found
        is_whole = proved_as.keys() <= rows.keys()
        if is_whole:
            assert bool(changed) == any(rows[each] != value for each, value in proved_as.items())
        proved_as |= {each: value for each, value in rows.items() if each not in proved_as}


def test_offsets_are_exact_above_the_whole_numbers_of_a_double() -> None:
    largest = 2**63 - 1
    counter = OffsetCounter([OffsetRange(ORDERS, 2**53, 2**53 + 10)])
    counter.add(pack("orders", np.zeros(3, int), np.array([2**53, 2**53 + 1, largest])))
    counted = counter.finish((), {ORDERS: 2**53 + 10})
    assert counted.held == (OffsetRange(ORDERS, 2**53, 2**53 + 2),)
    assert counted.beyond == (OffsetRange(ORDERS, largest - 1, largest),) or counted.beyond[0].start == largest


def test_rows_of_other_partitions_and_without_coordinates_are_counted_apart() -> None:
    counter = OffsetCounter([OffsetRange(ORDERS, 0, 10)])
    counter.add(pack("orders", np.array([0, 7, -1, 0]), np.array([3, 3, 3, -1])))
    counted = counter.finish((), {ORDERS: 10})
    assert (counted.held, counted.foreign, counted.stray) == ((OffsetRange(ORDERS, 3, 4),), 1, 2)


def test_counter_refuses_more_offsets_than_memory_is_for() -> None:
    with pytest.raises(ConfigurationError, match="too many for one look"):
        OffsetCounter([OffsetRange(ORDERS, 0, MOST_OFFSETS + 1)])


@given(st.lists(st.tuples(OFFSETS, st.integers(1, 20))), st.floats(0, 1), st.randoms())
def test_what_is_proved_again_is_a_part_of_what_is_proved(
    pieces: list[tuple[int, int]], share: float, chance: object
) -> None:
    proved = merge_ranges(OffsetRange(ORDERS, start * 2**18, (start + length) * 2**18) for start, length in pieces)
    again = choose_again(proved, share, chance, 100)  # type: ignore[arg-type] # A random of hypothesis.
    assert count_offsets(again) <= count_offsets(proved)
    assert count_offsets([*again, *proved]) - count_offsets(merge_ranges([*again, *proved])) == count_offsets(again)
    if share and proved:
        assert again[-1].until == proved[-1].until, "the newest part is always proved again"
    if share == 1:
        assert again == proved


@given(st.lists(st.tuples(st.integers(0, 10**9), st.integers(1, 10**6))))
def test_coarser_spans_lose_no_offset(pieces: list[tuple[int, int]]) -> None:
    ranges = merge_ranges(OffsetRange(ORDERS, start, start + length) for start, length in pieces)
    coarse = coarsen(ranges)
    assert merge_ranges([*coarse, *ranges]) == coarse
    assert len(coarse) <= len(ranges)


def test_look_is_the_same_after_it_was_stored() -> None:
    compared = ComparedTable([Frame(NEW, 10, 12, ())], TableCount((), stray=2))
    judged = judge_look(compared, HoleEvidence((), (), {}, frozenset()), HolePolicy.TRANSACTIONAL)
    look = TableLook(
        "orders", datetime(2026, 11, 20, tzinfo=UTC), WatchOutcome.CANNOT_SAY,
        (PartitionStanding(ORDERS, 0, 10, 12, 3, 2),), judged.found, {"markers": 1}, 5, ("a note",),
    )  # fmt: skip
    assert read_look(write_look(look)) == look
    assert (look.offsets, look.rows, look.proved, look.late) == (10, 2, 3, 2)


WHOLE = """\
watch: payments
source: {connection: kafka_default, topics: [payments]}
table: {connection: warehouse, name: public.payments}
coordinates: {topic: __kafka_topic, partition: __kafka_partition, offset: meta.offset}
"""


def read(folder: Path, text: str) -> WatchConfig:
    path = folder / "payments.yaml"
    path.write_text(text)
    return read_watch_file(path)


def test_file_of_a_watch_is_read(tmp_path: Path) -> None:
    watch = read(tmp_path, f"{WHOLE}since: 30d\nlateness: 2m\nrecheck: 5\n")
    assert (watch.name, watch.since_moment, watch.lateness, watch.recheck) == ("payments", timedelta(days=30), 120, 5)
    assert "payments" in watch.subject


def test_preset_stands_for_coordinates(tmp_path: Path) -> None:
    text = WHOLE.replace("{topic: __kafka_topic, partition: __kafka_partition, offset: meta.offset}", "redpanda")
    places = read(tmp_path, text).places
    assert (places.topic, places.partition, places.offset) == (None, "redpanda.partition", "redpanda.offset")


@pytest.mark.parametrize(
    ("old", "new", "word"),
    [
        ("__kafka_topic, ", "topic with space, ", "name of a column"),
        ("connection: warehouse, ", "", "one of connection"),
        ("connection: warehouse, ", "connection: warehouse, catalog: lake, ", "one of connection"),
        ("coordinates: {", "coordinates: snowflakes #", "no preset"),
        ("watch: payments", "watch: orders", "differs from the file name"),
        ("watch: payments", "watch: payments\nsince: yesterday", "allowed are earliest"),
        ("watch: payments", "watch: payments\nrecheck: 101", "100"),
    ],
)
def test_mistake_in_the_file_is_named_with_its_line(tmp_path: Path, old: str, new: str, word: str) -> None:
    with pytest.raises(FileRefusedError, match=word) as refused:
        read(tmp_path, WHOLE.replace(old, new))
    assert "payments.yaml:" in str(refused.value)


def test_several_topics_need_a_column_that_tells_them_apart(tmp_path: Path) -> None:
    several, no_column = ("[payments]", "[payments, refunds]"), ("topic: __kafka_topic, ", "")
    for either in (several, no_column):
        read(tmp_path, WHOLE.replace(*either))
    with pytest.raises(FileRefusedError, match="several topics"):
        read(tmp_path, WHOLE.replace(*several).replace(*no_column))


def test_guide_names_every_key_of_the_file() -> None:
    page = (ROOT / "docs" / "guides" / "watch.md").read_text(encoding="utf-8")
    assert set(re.findall(r"watch:(\w+)", page)) == WatchConfig.model_fields.keys()
