"""The topic that is read: JSON records of about 140 bytes, whose producers number them."""

import json
from collections.abc import Iterator

from rich.progress import track

from batchledger.kafka.admin import ensure_topic
from batchledger.kafka.producer import Record, produce
from bench.services import Services

TOPIC = "orders"
PARTITIONS = 4
DEVICES = 1000
SCHEMA = "message_id string, device_id int, seq bigint, amount double, note string"


def describe(number: int) -> bytes:
    """Return one record: number ``seq`` of its device, and a message id of its own."""
    record = {
        "message_id": f"{number:032x}",
        "device_id": number % DEVICES,
        "seq": number // DEVICES,
        "amount": number % 9973 / 4,
        "note": "forty characters that nobody reads again",
    }
    return json.dumps(record, separators=(",", ":")).encode()


def write_topic(services: Services, count: int) -> None:
    """Write ``count`` records. Those of a device lie in one partition, in their order."""

    def records() -> Iterator[Record]:
        for number in track(range(count), f"writing {count:,} records"):
            yield Record(key=str(number % DEVICES).encode(), value=describe(number))

    ensure_topic(services.kafka_options, TOPIC, PARTITIONS, {})
    produce(services.kafka_options, TOPIC, PARTITIONS, records(), lambda sent: None)
