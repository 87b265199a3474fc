"""What looks have proved, in the ledger's database: kept in one transaction a look, which a later look builds on."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from psycopg.types.json import Jsonb

from batchledger.database.transactions import ranges_as_arrays, read_statement
from batchledger.ledger.schema import snapshot, transaction
from batchledger.model.errors import ConfigurationError, LookOvertakenError
from batchledger.model.offsets import OffsetRange, TopicPartition, intersect, merge_ranges
from batchledger.proof.parts import Fingerprint, Part, split_parts
from batchledger.proof.watching import (
    SURPLUS,
    Discrepancy,
    Found,
    Judgement,
    PartitionStanding,
    TableLook,
    WatchedPartition,
    WatchOutcome,
)

RANGES_KEPT = 1_000
"""So many ranges of a finding are kept; all are counted."""
_NUMBERS = ("start", "until", "end", "proved", "rows", "behind")


@dataclass(frozen=True, slots=True)
class Known:
    """What the ledger has of a watch. ``revision`` counts its looks; None if there was none.

    ``seen_ends`` is where the logs ended for an earlier look. ``stray`` and ``foreign`` are what the newest one has
    counted of rows that belong to no offset: only a look at all rows counts them again.
    """

    subject: str
    since: str | None = None
    revision: int | None = None
    partitions: Mapping[TopicPartition, WatchedPartition] = field(default_factory=dict)
    seen_ends: Mapping[TopicPartition, int] = field(default_factory=dict)
    fingerprints: Mapping[Part, Fingerprint] = field(default_factory=dict)
    stray: int = 0
    foreign: int = 0

    def find_changed(self, proved: Sequence[OffsetRange]) -> list[OffsetRange]:
        """Return the parts of what is proved whose rows have changed: each look proves them again."""
        changed = {part for part, each in self.fingerprints.items() if each.is_changed}
        return [each for part, each in split_parts(proved) if part in changed] if changed else []


@dataclass(frozen=True)
class WatchStore:
    """The watches of one ledger."""

    dsn: str = field(repr=False)

    def load(self, watch: str, subject: str, before: datetime) -> Known:
        """Return what earlier looks have proved, and the ends that the newest look ``before`` a moment has seen.

        Raises ConfigurationError if they have looked at something else.
        """
        with snapshot(self.dsn, f"load what is proved of {watch}") as cursor:
            cursor.execute(read_statement(__package__, "load_watch"), [watch])
            found = cursor.fetchone()
            if found is None:
                return Known(subject)
            if found[0] != subject:
                raise ConfigurationError(
                    f"Watch {watch} has proved something else than its file names now. Nothing was looked at.",
                    why=f"So far: {found[0]}.\nNow: {subject}.",
                    advice=f"Correct the file. Or forget what was proved: batchledger watch {watch} --forget",
                    pipeline=watch,
                )
            cursor.execute(read_statement(__package__, "load_starts"), [watch])
            starts = {TopicPartition(topic, number): (topic_id, start) for topic, number, topic_id, start in cursor}
            cursor.execute(read_statement(__package__, "load_ends_before"), [watch, before])
            ends = {_read_partition(partition): end for partition, end in cursor}
            cursor.execute(read_statement(__package__, "load_parts"), [watch])
            prints = {}
            ranges: dict[tuple[TopicPartition, str], list[OffsetRange]] = defaultdict(list)
            for topic, number, kind, start, until in cursor:
                partition = TopicPartition(topic, number)
                ranges[partition, kind].append(OffsetRange(partition, start, until))
            cursor.execute(read_statement(__package__, "load_newest_counts"), [watch])
            newest = {Discrepancy(difference): count for difference, count in cursor}
            cursor.execute(read_statement(__package__, "load_fingerprints"), [watch])
            for topic, number, part, value, is_changed in cursor:
                prints[TopicPartition(topic, number), part] = Fingerprint(value, is_changed)
        partitions = {
            each: WatchedPartition(
                each,
                topic_id,
                start,
                *(tuple(merge_ranges(ranges[each, kind])) for kind in ("proved", "held", "lacking", "surplus")),
            )
            for each, (topic_id, start) in starts.items()
        }
        stray, foreign = (newest.get(kind, 0) for kind in (Discrepancy.STRAY, Discrepancy.FOREIGN))
        return Known(subject, found[1], found[2], partitions, ends, prints, stray, foreign)

    def save(
        self,
        look: TableLook,
        before: Known,
        known: Sequence[WatchedPartition],
        judgement: Judgement,
        prints: Mapping[Part, Fingerprint],
        *,
        since: str,
    ) -> None:
        """Keep what a look has proved, and what it says. ``known`` says where the watch begins, ``since`` the file.

        Raises LookOvertakenError if another look was stored since ``before`` was loaded.
        """
        kinds = {
            "proved": judgement.proved,
            "held": judgement.held,
            "withdrawn": judgement.withdrawn,
            "asked": judgement.asked,
            "lacking": judgement.list_ranges(Discrepancy.MISSING),
            "surplus": intersect(judgement.list_ranges(*SURPLUS), judgement.asked),
        }
        changes = [(kind, each) for kind, ranges in kinds.items() for each in ranges]
        with transaction(self.dsn, f"store a look of watch {look.watch}") as cursor:
            if before.revision is None:
                cursor.execute(read_statement(__package__, "insert_watch"), [look.watch, before.subject, since])
            else:
                cursor.execute(read_statement(__package__, "advance_watch"), [since, look.watch, before.revision])
            if cursor.rowcount != 1:
                raise LookOvertakenError(
                    f"The look of watch {look.watch} was not stored.",
                    why="Another look was stored meanwhile, and may have found something else.",
                    advice=f"Look again: batchledger watch {look.watch}",
                    pipeline=look.watch,
                )
            starts = ranges_as_arrays([OffsetRange(each.partition, each.start, each.start) for each in known])
            ids = {"watch": look.watch, "ids": [each.topic_id for each in known]}
            cursor.execute(read_statement(__package__, "store_starts"), {**ids, **starts})
            cursor.execute(read_statement(__package__, "remove_parts_before_starts"), [look.watch])
            of_kinds = {"watch": look.watch, "kinds": [kind for kind, _ in changes]}
            changed = ranges_as_arrays([each for _, each in changes])
            cursor.execute(read_statement(__package__, "change_parts"), {**of_kinds, **changed})
            cursor.execute(
                read_statement(__package__, "store_fingerprints"),
                {
                    "watch": look.watch,
                    "topics": [partition.topic for partition, _ in prints],
                    "partitions": [partition.partition for partition, _ in prints],
                    "parts": [at for _, at in prints],
                    "values": [each.value for each in prints.values()],
                    "changed": [each.is_changed for each in prints.values()],
                },
            )
            document = Jsonb(write_look(look))
            cursor.execute(
                read_statement(__package__, "insert_watch_look"), [look.watch, look.looked_at, look.outcome, document]
            )
            cursor.execute(read_statement(__package__, "remove_old_looks"), [look.watch])

    def load_newest(self, watch: str) -> TableLook | None:
        """Return the newest look of a watch; None if there was none."""
        with snapshot(self.dsn, f"look at the newest look of {watch}") as cursor:
            cursor.execute(read_statement(__package__, "load_newest_look"), [watch])
            return next((read_look(document) for (document,) in cursor), None)

    def forget(self, watch: str) -> bool:
        """Remove everything that the ledger has of a watch; return whether there was anything."""
        with transaction(self.dsn, f"forget watch {watch}") as cursor:
            cursor.execute(read_statement(__package__, "forget_watch"), [watch])
            return cursor.rowcount == 1


def write_look(look: TableLook) -> dict[str, Any]:
    """Return a look as a document, of which ``read_look`` makes the same look, with the first ranges of a finding."""
    return {
        "watch": look.watch,
        "looked_at": look.looked_at.isoformat(),
        "outcome": look.outcome,
        **{name: getattr(look, name) for name in ("offsets", "rows", "proved", "late", "rechecked")},
        "holes": dict(look.holes),
        "found": [
            {"difference": each.difference, "count": each.count, "ranges": list(map(str, each.ranges[:RANGES_KEPT]))}
            for each in look.found
        ],
        "notes": list(look.notes),
        "partitions": [
            {"partition": str(each.partition), **{name: getattr(each, name) for name in _NUMBERS}}
            for each in look.partitions
        ],
    }


def read_look(document: Mapping[str, Any]) -> TableLook:
    """Return the look of a document that ``write_look`` has made."""
    return TableLook(
        watch=document["watch"],
        looked_at=datetime.fromisoformat(document["looked_at"]),
        outcome=WatchOutcome(document["outcome"]),
        partitions=tuple(
            PartitionStanding(
                _read_partition(each["partition"]),
                *(each[name] for name in _NUMBERS),
            )
            for each in document["partitions"]
        ),
        found=tuple(
            Found(Discrepancy(each["difference"]), each["count"], tuple(map(_read_range, each["ranges"])))
            for each in document["found"]
        ),
        holes=document["holes"],
        rechecked=document["rechecked"],
        notes=tuple(document["notes"]),
    )


def _read_range(text: str) -> OffsetRange:
    """Return a range that a table has, which Kafka need not have: the end of one may be 2⁶³."""
    where, _, offsets = text.rpartition(" ")
    start, until = map(int, offsets.split(".."))
    return OffsetRange(_read_partition(where), start, until)


def _read_partition(text: str) -> TopicPartition:
    return OffsetRange.parse(f"{text} 0..0").partition
