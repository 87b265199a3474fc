"""Whether rows are as they were when they were proved: a hash for each part of a partition, if the file asks for it.

The hash of a part is the exclusive or of its rows, so a row that is proved later is added without reading the others.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import reduce
from itertools import islice
from operator import xor

from batchledger.model.offsets import OffsetRange, find_gaps, intersect, merge_ranges
from batchledger.proof.parts import Fingerprint, Part, split_parts
from batchledger.proof.watching import Discrepancy, Found, Judgement, tell
from batchledger.watching.table import WatchedTable


def compare_hashes(
    table: WatchedTable,
    known: Mapping[Part, Fingerprint],
    held: Sequence[OffsetRange],
    judgement: Judgement,
) -> tuple[Mapping[Part, Fingerprint], list[Found]]:
    """Return the fingerprints that a look changes, and where rows have changed.

    The hash of a part is about ``held``, the rows that were proved before. It is compared if the look has seen all of
    them.
    """
    before, lost = _group(held), _group(judgement.list_ranges(Discrepancy.DELETED))
    asked = _group(intersect(held, judgement.asked))
    of_whole = _hash(table, {part: all_ for part, all_ in asked.items() if all_ == before[part] and part not in lost})
    of_more = _hash(table, _group(find_gaps(held, within=judgement.held)))
    found: dict[Part, Fingerprint] = {}
    for part in {*of_whole, *of_more}:
        stored = known.get(part, Fingerprint(None))
        value, is_changed = stored.value if part in before else 0, stored.is_changed
        if part in of_whole:
            is_changed = value is not None and value != of_whole[part]
            value = value if is_changed else of_whole[part]
        found[part] = Fingerprint(None if value is None else value ^ of_more.get(part, 0), is_changed)
    changed = [part for part, each in {**known, **found}.items() if each.is_changed]
    ranges = merge_ranges(each for part in changed for each in before.get(part, ()))
    return found, [tell(Discrepancy.CHANGED, ranges)] if ranges else []


def _group(ranges: Sequence[OffsetRange]) -> dict[Part, list[OffsetRange]]:
    pieces: dict[Part, list[OffsetRange]] = defaultdict(list)
    for part, each in split_parts(merge_ranges(ranges)):
        pieces[part].append(each)
    return pieces


def _hash(table: WatchedTable, pieces_by_part: Mapping[Part, Sequence[OffsetRange]]) -> dict[Part, int]:
    """Return the hash of the rows of each part."""
    hashes = iter(table.fingerprint([each for pieces in pieces_by_part.values() for each in pieces]))
    return {part: reduce(xor, islice(hashes, len(pieces))) for part, pieces in pieces_by_part.items()}
