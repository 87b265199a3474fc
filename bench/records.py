"""The topic that is read: JSON records of about 140 bytes, numbered by their devices."""

import json
from collections.abc import Iterator
from dataclasses import dataclass

from rich.progress import track

from batchledger.local.samples.admin import ensure_topic, find_ends
from batchledger.local.samples.producer import SampleRecord, produce
from bench.services import Services

TOPIC = "orders"
PARTITIONS = 4
DEVICES = 1000
SCHEMA = "message_id string, device_id int, seq bigint, amount double, note string"
KEY = "device_id"


@dataclass(frozen=True)
class Topic:
    """A written topic: the end of each partition, and the bytes of all values."""

    name: str
    end_by_partition: dict[int, int]
    value_bytes: int

    @property
    def records(self) -> int:
        """How many it holds."""
        return sum(self.end_by_partition.values())


def describe(number: int) -> bytes:
    """Return one record: number ``seq`` of its device, and a message id of its own."""
    record = {
        "message_id": f"{number:032x}",
        "device_id": number % DEVICES,
        "seq": number // DEVICES,
        "amount": number % 9973 / 4,
        "note": "forty characters that no one reads again",
    }
    return json.dumps(record, separators=(",", ":")).encode()


def to_record(number: int, timestamp_ms: int = 0) -> SampleRecord:
    """Return one record. Its key is its device, so the records of a device lie in one partition, in their order."""
    return SampleRecord(str(number % DEVICES).encode(), describe(number), timestamp_ms)


def write_topic(services: Services, count: int, name: str = TOPIC, partitions: int = PARTITIONS) -> Topic:
    """Create the topic and write ``count`` records; every partition has some if there are enough devices."""
    value_bytes = 0

    def records() -> Iterator[SampleRecord]:
        nonlocal value_bytes
        for number in track(range(count), f"writing {count:,} records to {name}", transient=True):
            record = to_record(number)
            value_bytes += len(record.value)
            yield record

    create_topic(services, name, partitions)
    produce(services.kafka_options, name, partitions, records(), lambda sent: None)
    return Topic(name, find_ends(services.kafka_options, name, partitions), value_bytes)


def create_topic(services: Services, name: str, partitions: int = PARTITIONS) -> None:
    """Create an empty topic."""
    ensure_topic(services.kafka_options, name, partitions, {})
