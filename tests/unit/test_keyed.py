"""Rows by key: the verdict is the same however the log is cut into portions, and is what a plain account says."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchledger.model.errors import ConfigurationError
from batchledger.proof.watching import Discrepancy
from batchledger.watching import keyed
from batchledger.watching.keyed import (
    AppendedKeys,
    Finished,
    KeyAnswer,
    KeyedRecords,
    KeyJudge,
    Place,
    UpsertedKeys,
)

KEYS = "abcd"


@dataclass(frozen=True)
class Record:
    """A record, whose version is None if it deletes its key."""

    key: str
    version: int | None

    @property
    def lane(self) -> int:
        return KEYS.index(self.key) % 2


Log = Sequence[Record]
Table = Mapping[str, Sequence[int]]
logs = st.lists(st.builds(Record, st.sampled_from(KEYS), st.one_of(st.none(), st.integers(0, 3))), max_size=30)
appended = st.lists(st.builds(Record, st.sampled_from(KEYS), st.integers(0, 3)), max_size=30)
tables = st.dictionaries(st.sampled_from(KEYS), st.lists(st.integers(0, 3), max_size=3), max_size=4)
sizes = st.integers(1, 8)


def number_records(log: Log) -> list[tuple[Record, Place]]:
    ends: Counter[int] = Counter()
    placed = []
    for each in log:
        placed.append((each, (each.lane, ends[each.lane])))
        ends[each.lane] += 1
    return placed


def judge(judging: KeyJudge, log: Log, table: Table, size: int, judged: int = 10**6) -> tuple[set[Place], Finished]:
    """Judge the first records of the log in portions, let it see the others, and return what is held in the end."""
    placed = number_records(log)
    held: set[Place] = set()
    for part, is_judged in ((placed[:judged], True), (placed[judged:], False)):
        for at in range(0, len(part), size):
            chosen = part[at : at + size]
            lanes, offsets = np.array([place for _, place in chosen], np.int64).T
            records = KeyedRecords(
                lanes,
                offsets,
                pa.array([each.key for each, _ in chosen]),
                np.array([each.version is None for each, _ in chosen]),
            )
            groups = judging.group(records)
            if not is_judged:
                judging.see(records, groups)
                continue
            found = judging.judge(records, groups, answer(table, [chosen[place][0] for place in groups.newest]))
            held |= {place for (_, place), is_held in zip(chosen, found, strict=True) if is_held}
    finished = judging.finish()
    return held | set(finished.held), finished


def answer(table: Table, asked: Sequence[Record]) -> KeyAnswer:
    """What a table says that compares versions."""
    rows = [table.get(each.key, ()) for each in asked]
    agrees = [
        all(each.version is None or row >= each.version for row in found)
        for each, found in zip(asked, rows, strict=True)
    ]
    return KeyAnswer(np.array([len(each) for each in rows], np.int64), np.array(agrees, bool))


@given(log=appended, table=tables, size=sizes, judged=st.integers(0, 30))
def test_appended_record_is_held_if_its_key_has_a_row_and_twice_if_it_has_more_rows_than_records(
    log: Log, table: Table, size: int, judged: int
) -> None:
    held, finished = judge(AppendedKeys(), log, table, size, judged)
    placed = number_records(log)[:judged]
    records = Counter(each.key for each in log)
    rows = {key: len(found) for key, found in table.items()}
    assert held == {place for each, place in placed if rows.get(each.key, 0) > 0}
    twice = {place for each, place in placed if rows.get(each.key, 0) > max(1, records[each.key])}
    assert set(finished.found.get(Discrepancy.TWICE, ())) == twice


@given(log=logs, table=tables, size=sizes, judged=st.integers(0, 30))
def test_row_of_an_upserted_key_is_compared_with_its_newest_record_alone(
    log: Log, table: Table, size: int, judged: int
) -> None:
    held, finished = judge(UpsertedKeys(), log, table, size, judged)
    newest = {each.key: place for each, place in number_records(log)}
    expected: dict[Discrepancy | None, set[Place]] = defaultdict(set)
    missing = set()
    for each, place in number_records(log)[:judged]:
        rows = table.get(each.key, ())
        if newest[each.key] != place:
            continue
        if each.version is None:
            if rows:
                expected[Discrepancy.UNDELETED].add(place)
        elif not rows:
            missing.add(place)
        elif len(rows) > 1:
            expected[Discrepancy.TWICE].add(place)
        elif rows[0] < each.version:
            expected[Discrepancy.STALE].add(place)
    wrong = expected[Discrepancy.UNDELETED] | expected[Discrepancy.STALE] | missing
    assert held == {place for _, place in number_records(log)[:judged]} - wrong
    assert {kind: set(places) for kind, places in finished.found.items()} == {
        kind: places for kind, places in expected.items() if places
    }


def test_without_the_rest_of_the_log_a_superseded_record_would_be_stale() -> None:
    log = [Record("a", 1), Record("a", 2)]
    _, finished = judge(UpsertedKeys(), log[:1], {"a": [0]}, 1)
    assert finished.found == {Discrepancy.STALE: [(0, 0)]}
    judging = UpsertedKeys()
    judge(judging, log, {"a": [0]}, 1, judged=1)
    assert (judging.is_waiting, judging.superseded) == (False, 1)


def test_keys_that_wait_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    log = [Record("a", 1), Record("b", 1), Record("c", 1)]
    monkeypatch.setattr(keyed, "MOST_WAITING", 2)
    judge(UpsertedKeys(), log[:2], {}, 1)
    with pytest.raises(ConfigurationError, match="More than 2 keys"):
        judge(UpsertedKeys(), log, {}, 1)
    with pytest.raises(ConfigurationError, match="More than 2 keys"):
        judge(AppendedKeys(), log, {each: [1, 1] for each in "abc"}, 1)
