"""A watched table in an Iceberg catalog: one process reads the coordinates of its files, and nothing else of them."""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from time import monotonic
from typing import Any, NamedTuple

import numpy as np
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.manifest import ManifestContent
from pyiceberg.table import FileScanTask, Table
from typing_extensions import override

from batchledger.model.counting import describe_count
from batchledger.model.offsets import OffsetRange, single_offset
from batchledger.settings.connections import load_connection
from batchledger.sinks.iceberg.catalog import LakeCatalog, open_catalog, spark_settings, translate_errors
from batchledger.watching.counting import RepeatCounter, Words, pack
from batchledger.watching.iceberg_files import CoordinateColumns, Rows, choose_files, find_columns, open_files
from batchledger.watching.table import CountedTable, LocatedRows, ReadCost, RowCoordinates, refuse_table, require_bound

PLACES_SHOWN = 4


class RowPlace(NamedTuple):
    """Where a row is: its file, which row of it if that is known, and which copy of the file, of those in the table."""

    path: str
    row: int | None
    copy: int


def open_lake_table(catalog: str, asked_by: str, *of_table: Any) -> "LakeTable":
    """Return a table of the catalog behind a connection; ``of_table`` are its other fields. Makes no catalog."""
    opened = open_catalog(load_connection(catalog, ("iceberg",), asked_by))
    return LakeTable(replace(opened, properties={**opened.properties, "init_catalog_tables": "false"}), *of_table)


@dataclass(frozen=True)
class LakeTable(CountedTable):
    """``table`` is namespace and name; ``topics`` are the ones that its rows are of."""

    catalog: LakeCatalog
    table: str
    coordinates: RowCoordinates
    topics: tuple[str, ...]
    max_rows: int | None = None
    timeout_seconds: float = 600
    _planned: dict[object, list[FileScanTask]] = field(default_factory=dict, repr=False, compare=False)

    @property
    @override
    def name(self) -> str:
        return f"{self.catalog.name}.{self.table}"

    @property
    def spark_settings(self) -> Mapping[str, str]:
        """The settings with which a session of Spark finds the table under its name."""
        return spark_settings(self.catalog)

    @override
    def estimate(self, spans: Sequence[OffsetRange] | None) -> ReadCost:
        with self.open("plan the files") as (table, columns):
            tasks = self._plan(table, columns, spans)
            size = sum(_count_bytes(each, columns) for each in tasks)
            total = count_total(table, "data-files")
            how = f"{len(tasks):,} of {describe_count(total, 'file')}, {size / 2**20:,.1f} MiB of its columns"
            return self.require_bound(ReadCost(sum(each.file.record_count for each in tasks), how))

    def require_bound(self, cost: ReadCost) -> ReadCost:
        """Return the cost. Raises ConfigurationError if it is above ``max_rows``."""
        return require_bound(self.name, cost, self.max_rows, "Let the watch begin later (since), or raise max_rows.")

    @override
    def count(self, spans: Sequence[OffsetRange] | None) -> Iterator[Words]:
        with self.open("count its offsets") as (table, columns):
            for _, _, rows in self._read(table, columns, self._plan(table, columns, spans)):
                yield from self._pack(rows, spans)

    @override
    def count_repeated(self, spans: Sequence[OffsetRange]) -> Iterator[Words]:
        with self.open("find offsets that are there twice") as (table, columns):
            counter = RepeatCounter(spans)
            for _, _, rows in self._read(table, columns, self._plan(table, columns, spans)):
                for topic, chosen in self._by_topic(rows):
                    counter.add(topic, chosen.partitions, chosen.offsets)
            yield from counter.finish()

    @override
    def locate(self, offsets: Sequence[OffsetRange]) -> Sequence[LocatedRows]:
        wanted = [each.start for each in offsets]
        with self.open("find rows that are there twice") as (table, columns):
            places: dict[OffsetRange, list[RowPlace]] = {each: [] for each in offsets}
            tasks = self._plan(table, columns, offsets)
            copies = _number_copies(tasks)
            for task, first, rows in self._read(table, columns, tasks):
                near = rows.choose((rows.partitions >= 0) & np.isin(rows.offsets, wanted))
                for topic, chosen in self._by_topic(near):
                    for *place, at in zip(*(part.tolist() for part in chosen[1:]), strict=True):
                        found = places.get(single_offset(topic, *place))
                        if found is not None:
                            row = None if task.delete_files else first + at
                            found.append(RowPlace(task.file.file_path, row, copies[id(task)]))
            return describe_places(table, places)

    def _pack(self, rows: Rows, spans: Sequence[OffsetRange] | None) -> Iterator[Words]:
        """Yield the words of rows; of files that are read for some spans, rows of other partitions are left out."""
        is_stray = (rows.topics < 0) | (rows.partitions < 0) | (rows.offsets < 0)
        if is_stray.any():
            yield pack(self.topics[0], np.full(int(is_stray.sum()), -1), np.full(int(is_stray.sum()), -1))
        for topic, chosen in self._by_topic(rows.choose(~is_stray)):
            asked = [each.partition.partition for each in spans or () if each.partition.topic == topic]
            kept = chosen if spans is None else chosen.choose(np.isin(chosen.partitions, asked))
            yield pack(topic, kept.partitions, kept.offsets)

    def _by_topic(self, rows: Rows) -> Iterator[tuple[str, Rows]]:
        for number, topic in enumerate(self.topics):
            chosen = rows if self.coordinates.topic is None else rows.choose(rows.topics == number)
            if len(chosen.topics):
                yield topic, chosen

    def _plan(
        self, table: Table, columns: CoordinateColumns, spans: Sequence[OffsetRange] | None
    ) -> list[FileScanTask]:
        """Return the files that may hold rows of the spans. The plan of one state is made once."""
        snapshot = table.current_snapshot()
        asked = (snapshot and snapshot.snapshot_id, None if spans is None else tuple(spans))
        if asked not in self._planned:
            self._planned.clear()
            try:
                files = table.scan(AlwaysTrue() if spans is None else choose_files(columns, spans)).plan_files()
            except (ValueError, NotImplementedError) as error:
                if "equality delete" not in str(error):
                    raise
                raise refuse_table(
                    self.name,
                    "has rows that are deleted by equality, which PyIceberg does not read",
                    "Name a connection of Spark Connect, which reads them: table.spark",
                ) from error
            self._planned[asked] = list(files)
        return self._planned[asked]

    def _read(
        self, table: Table, columns: CoordinateColumns, tasks: Sequence[FileScanTask]
    ) -> Iterator[tuple[FileScanTask, int, Rows]]:
        """Yield rows of the topics, with their file, and how many rows of it came before them."""
        read, ends = open_files(table, columns), monotonic() + self.timeout_seconds
        for task in tasks:
            first = 0
            for batch in read(task):
                if monotonic() >= ends:
                    raise refuse_table(
                        self.name,
                        f"could not be read within {self.timeout_seconds:.0f} s",
                        "Let the watch begin later (since), or raise timeout.",
                    )
                yield task, first, columns.read(batch, self.topics)
                first += batch.num_rows

    @contextmanager
    def open(self, doing: str) -> Iterator[tuple[Table, CoordinateColumns]]:
        """Load the table; what is read of it afterwards is one state."""
        with translate_errors(doing, self.name):
            try:
                table = self.catalog.opened.load_table(tuple(self.table.split(".")))
                yield table, find_columns(self.name, table.schema(), self.coordinates)
            except NoSuchTableError as error:
                advice = "Write its name as namespace.table, as the catalog has it."
                raise refuse_table(self.name, "is not there", advice) from error
            finally:
                self.catalog.rest()


def _count_bytes(task: FileScanTask, columns: CoordinateColumns) -> int:
    """Return how many bytes the columns have in a file; the bytes of the whole file if it does not say."""
    sizes = task.file.column_sizes or {}
    found = [sizes.get(each.field_id) for each in columns.all]
    known = [each for each in found if each is not None]
    return sum(known) if len(known) == len(found) else task.file.file_size_in_bytes


def count_total(table: Table, what: str) -> int:
    """Return how many data files, records or the like the table has, as its newest snapshot says."""
    snapshot = table.current_snapshot()
    summary = snapshot and snapshot.summary
    return int(summary.additional_properties.get(f"total-{what}", 0)) if summary else 0


def _number_copies(tasks: Sequence[FileScanTask]) -> Mapping[int, int]:
    """Return for each task how many before it read the same file."""
    seen: Counter[str] = Counter()
    numbers = {}
    for each in tasks:
        numbers[id(each)] = seen[each.file.file_path]
        seen[each.file.file_path] += 1
    return numbers


def describe_places(table: Table, places: Mapping[OffsetRange, Sequence[RowPlace]]) -> list[LocatedRows]:
    """Return offsets with the places of their rows: the file, the row in it, and the snapshot that added the file."""
    shown = {each: found[:PLACES_SHOWN] for each, found in places.items()}
    snapshots = _find_snapshots(table, {place.path for found in shown.values() for place in found})
    return [
        LocatedRows(each, len(places[each]), tuple(_describe(place, snapshots) for place in found))
        for each, found in shown.items()
    ]


def _find_snapshots(table: Table, paths: Collection[str]) -> Mapping[str, list[int]]:
    """Return for each of some files the snapshots that added it: usually one."""
    found: dict[str, list[int]] = defaultdict(list)
    snapshot = table.current_snapshot()
    for manifest in snapshot.manifests(table.io) if snapshot else ():
        if manifest.content is ManifestContent.DATA:
            for entry in manifest.fetch_manifest_entry(table.io):
                if entry.data_file.file_path in paths and entry.snapshot_id is not None:
                    found[entry.data_file.file_path].append(entry.snapshot_id)
    return found


def _describe(place: RowPlace, snapshots: Mapping[str, list[int]]) -> str:
    ids = snapshots.get(place.path, [])
    row = "" if place.row is None else f", row {place.row}"
    added = f", added by snapshot {ids[place.copy]}" if place.copy < len(ids) else ""
    return f"{place.path}{row}{added}"
