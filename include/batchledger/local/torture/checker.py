"""Compare the log with the target, record by record, with clients of its own: no code is shared with the platform.

It reads the log like any consumer (read_committed), before records expire, and the target like any client. It never
asks the ledger.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from time import monotonic, sleep
from types import MappingProxyType
from typing import Any

import psycopg
import pyarrow.parquet as pq
from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, OffsetSpec
from psycopg import sql
from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.table import Table
from typing_extensions import override

from batchledger.local.torture.records import DEADLY, LATEST_TIMESTAMP_MS, IntendedRecord, payload_of

_SILENCE_SECONDS = 60.0
_POLL_SECONDS = 0.1
_CONSUMER = {
    "group.id": "torture-checker",
    "enable.auto.commit": False,
    "isolation.level": "read_committed",
    "enable.partition.eof": True,
    # Records expire only after they were read; the rest of their transaction may go as well.
    "auto.offset.reset": "earliest",
    "log_level": 0,
}


@dataclass(frozen=True, slots=True)
class Row:
    """One row of the target: its record, the coordinates that it names, and when it became visible.

    ``appeared`` comes from the target itself: the moment of a commit in a database, the offset in a topic, or the
    number of a commit in an Iceberg table. The platform's batch numbers are not used.
    """

    record: IntendedRecord
    topic: str
    partition: int
    offset: int
    appeared: datetime | int


@dataclass(frozen=True)
class Differences:
    """What is wrong with a target, by record id; empty lists mean that log and target agree.

    ``phantom`` are rows that the log does not hold, and records that were aborted and are in the log or the target.
    ``out_of_order`` has, for each key, the first record that became visible later than one that follows it.
    ``broker_lost`` are records that the broker acknowledged and the log does not hold. ``not_set_aside`` are the
    places of poison records that quarantine does not hold, or not with their bytes.
    """

    records: int
    rows: int
    lost: Sequence[str] = ()
    duplicated: Sequence[str] = ()
    phantom: Sequence[str] = ()
    out_of_order: Sequence[str] = ()
    wrong_value: Sequence[str] = ()
    broker_lost: Sequence[str] = ()
    not_set_aside: Sequence[str] = ()


@dataclass
class LogReader:
    """All records that a topic has ever held, by (partition, offset); ``read`` adds the new ones.

    ``poison`` are the values of records that cannot become rows: they do not decode, have an impossible timestamp, or
    end the process that decodes them.
    ``options`` configure a librdkafka client.
    """

    options: Mapping[str, str]
    topic: str
    records: dict[tuple[int, int], IntendedRecord] = field(default_factory=dict)
    poison: dict[tuple[int, int], bytes] = field(default_factory=dict)
    _next_offset_by_partition: dict[int, int] = field(default_factory=dict)

    def read(self) -> None:
        """Read to the last stable offset of every partition. Raises TimeoutError if the broker is silent."""
        consumer = Consumer({**self.options, **_CONSUMER})
        try:
            partitions = consumer.list_topics(self.topic, timeout=_SILENCE_SECONDS).topics[self.topic].partitions
            starts = {each: self._next_offset_by_partition.get(each, OFFSET_BEGINNING) for each in partitions}
            consumer.assign([TopicPartition(self.topic, each, start) for each, start in starts.items()])
            self._read_to_the_end(consumer, set(partitions))
            for each in consumer.position([TopicPartition(self.topic, number) for number in partitions]):
                if each.offset >= 0:
                    self._next_offset_by_partition[each.partition] = each.offset
        finally:
            consumer.close()

    def wait_until_decided(self) -> None:
        """Return when no transaction is open: acknowledged records may be hidden until then. Raises TimeoutError."""
        client = AdminClient({**self.options, "log_level": 0})
        deadline = monotonic() + _SILENCE_SECONDS
        while self._ends(client, IsolationLevel.READ_COMMITTED) != self._ends(client, IsolationLevel.READ_UNCOMMITTED):
            if monotonic() > deadline:
                raise TimeoutError(f"a transaction in {self.topic} was still open after {_SILENCE_SECONDS:.0f} s")
            sleep(_POLL_SECONDS)

    def _ends(self, client: AdminClient, isolation: IsolationLevel) -> dict[int, int]:
        partitions = client.list_topics(self.topic, timeout=_SILENCE_SECONDS).topics[self.topic].partitions
        asked = {TopicPartition(self.topic, each): OffsetSpec.latest() for each in partitions}
        found = client.list_offsets(asked, isolation_level=isolation, request_timeout=_SILENCE_SECONDS)
        return {each.partition: future.result().offset for each, future in found.items()}

    def _read_to_the_end(self, consumer: Consumer, unfinished: set[int]) -> None:
        deadline = monotonic() + _SILENCE_SECONDS
        while unfinished:
            message = consumer.poll(1.0)
            if message is None:
                if monotonic() > deadline:
                    raise TimeoutError(f"the broker was silent for {_SILENCE_SECONDS:.0f} s; {self.topic} is unread")
                continue
            error, partition, value = message.error(), message.partition(), message.value()
            if error is None and partition is not None and value is not None:
                deadline = monotonic() + _SILENCE_SECONDS
                self._keep(message, partition, value)
            elif error is not None and error.code() == KafkaError._PARTITION_EOF and partition is not None:
                unfinished.discard(partition)
            elif error is not None:
                raise KafkaException(error)

    def _keep(self, message: Message, partition: int, value: bytes) -> None:
        place = partition, message.offset() or 0
        try:
            record = IntendedRecord.decode(value)
        except (ValueError, TypeError):
            self.poison[place] = value
            return
        if message.timestamp()[1] > LATEST_TIMESTAMP_MS or record.record_id.endswith(DEADLY):
            self.poison[place] = value
        else:
            self.records[place] = record


@dataclass
class OutputReader(LogReader):
    """The rows that readers of committed records see in a topic, by its (partition, offset).

    A key stays in one partition, so the offsets say which of its records came first.
    """

    rows: dict[tuple[int, int], Row] = field(default_factory=dict)

    @override
    def _keep(self, message: Message, partition: int, value: bytes) -> None:
        headers: Any = message.headers()
        headers = {name: content.decode() for name, content in headers}
        if "_batchledger" in headers:
            headers = dict(zip(("_topic", "_partition", "_offset"), headers["_batchledger"].split("|"), strict=False))
        place, offset = (int(headers[name]) for name in ("_partition", "_offset"))
        at = message.offset() or 0
        self.rows[partition, at] = Row(IntendedRecord.decode(value), headers["_topic"], place, offset, at)


def read_output(reader: OutputReader) -> list[Row]:
    """Return every record of the target topic, empty if there is no topic yet; waits for open transactions."""
    client = AdminClient({**reader.options, "log_level": 0})
    if client.list_topics(timeout=_SILENCE_SECONDS).topics.get(reader.topic) is None:
        return []
    reader.wait_until_decided()
    reader.read()
    return list(reader.rows.values())


@dataclass(frozen=True)
class LakeReader:
    """The rows that readers of an Iceberg table see; ``properties`` configure the catalog."""

    catalog: str
    properties: Mapping[str, str] = field(repr=False)
    identifier: tuple[str, ...]

    def read(self) -> list[Row]:
        """Return every row, empty if there is no table yet.

        The number of the commit that added a row's file says when the row became visible: no file is rewritten.
        """
        try:
            table = load_catalog(self.catalog, **self.properties).load_table(self.identifier)
        except NoSuchTableError:
            return []
        snapshot = table.current_snapshot()
        manifests = snapshot.manifests(table.io) if snapshot else []
        return [
            _as_row(row, int(entry.sequence_number or 0))
            for manifest in manifests
            for entry in manifest.fetch_manifest_entry(table.io)
            for row in _read_file(table, entry.data_file.file_path)
        ]


def _as_row(row: Mapping[str, Any], appeared: int) -> Row:
    record = IntendedRecord(*(row[name] for name in ("record_id", "record_key", "sequence", "payload")))
    return Row(record, row["_topic"], row["_kafka_partition"], row["_offset"], appeared)


def _read_file(table: Table, path: str) -> list[dict[str, Any]]:
    with table.io.new_input(path).open() as file:
        rows: list[dict[str, Any]] = pq.read_table(file).to_pylist()
    return rows


def read_target(dsn: str, table: str) -> list[Row]:
    """Return every row of the target, empty if there is no target yet. The server has to track commit timestamps."""
    with psycopg.connect(dsn) as connection:
        if connection.execute("select to_regclass(%s)", [table]).fetchone() == (None,):
            return []
        query = sql.SQL(
            "select record_id, record_key, sequence, payload, _topic, _partition, _offset, "
            "pg_xact_commit_timestamp(xmin) from {}"
        ).format(sql.Identifier(table))
        return [Row(IntendedRecord(*found[:4]), *found[4:]) for found in connection.execute(query)]


def read_quarantine(dsn: str, topic: str) -> dict[tuple[int, int], bytes]:
    """Return the values of a topic's records in quarantine, by (partition, offset)."""
    with psycopg.connect(dsn) as connection:
        query = 'select partition, "offset", value from batchledger.quarantine where topic = %s'
        return {(partition, offset): value for partition, offset, value in connection.execute(query, [topic])}


def compare(
    topic: str,
    log: Mapping[tuple[int, int], IntendedRecord],
    rows: Sequence[Row],
    acknowledged: Iterable[str],
    *,
    failed: Iterable[str] = (),
    poison: Mapping[tuple[int, int], bytes] = MappingProxyType({}),
    set_aside: Mapping[tuple[int, int], bytes] = MappingProxyType({}),
) -> Differences:
    """Compare by record id. ``log`` holds committed records of the topic by (partition, offset).

    ``acknowledged`` are the ids that are certainly written, ``failed`` the ids that certainly never will be.
    """
    expected = Counter(each.record_id for each in log.values())
    found = Counter(each.record.record_id for each in rows)
    return Differences(
        records=len(log),
        rows=len(rows),
        lost=sorted((expected - found).elements()),
        duplicated=sorted(each for each, count in found.items() if 0 < expected[each] < count),
        phantom=sorted((found.keys() - expected.keys()) | ((expected.keys() | found.keys()) & set(failed))),
        out_of_order=_find_out_of_order(rows),
        wrong_value=sorted({each.record.record_id for each in rows if _is_wrong(each, topic, log, expected)}),
        broker_lost=sorted(each for each in acknowledged if each not in expected),
        not_set_aside=[
            f"{topic}[{place}]@{offset}"
            for (place, offset), value in sorted(poison.items())
            if set_aside.get((place, offset)) != value
        ],
    )


def _is_wrong(row: Row, topic: str, log: Mapping[tuple[int, int], IntendedRecord], known: Mapping[str, int]) -> bool:
    """Whether the row differs from the record that the log holds at the coordinates of the row.

    Phantoms have no such record; only their payload can be wrong.
    """
    if row.record.payload != payload_of(row.record.record_id):
        return True
    is_in_log = row.record.record_id in known
    return is_in_log and (row.topic != topic or log.get((row.partition, row.offset)) != row.record)


def _find_out_of_order(rows: Sequence[Row]) -> list[str]:
    """Return what came out of order: within a key, a later commit must not bring an earlier record."""
    rows_by_key: dict[str, list[Row]] = defaultdict(list)
    for each in sorted(rows, key=lambda row: (row.appeared, row.offset)):
        rows_by_key[each.record.record_key].append(each)
    late = []
    for arrivals in rows_by_key.values():
        seen: set[str] = set()
        newest = -1
        for record in (row.record for row in arrivals):
            if record.record_id in seen:
                continue
            seen.add(record.record_id)
            if record.sequence < newest:
                late.append(record.record_id)
                break
            newest = record.sequence
    return late
