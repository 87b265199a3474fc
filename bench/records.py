"""The topic that is read: records of about 140 bytes, numbered by their devices; JSON unless a part says more."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from confluent_kafka.admin import NewPartitions
from rich.progress import track

from batchledger.local.samples.admin import ensure_topic, find_ends
from batchledger.local.samples.producer import SampleRecord, produce
from batchledger.source.kafka.requests import open_admin
from bench.services import Services

TOPIC = "orders"
PARTITIONS = 4
DEVICES = 1000
SCHEMA = "message_id string, device_id int, seq bigint, amount double, note string"
KEY = "device_id"
PARTITIONS_AT_ONCE = 2_500
CHANGING_SECONDS = 60.0

Write = Callable[[int], bytes]
"""Returns the value of the record with this number."""


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


class Fields(StrEnum):
    """How the fields of a record are written."""

    PLAIN = "plain"
    TEXTS = "texts"
    NESTED = "nested"


def make_fields(number: int) -> dict[str, Any]:
    """Return the fields of one record: number ``seq`` of its device, and a message id of its own."""
    return {
        "message_id": f"{number:032x}",
        "device_id": number % DEVICES,
        "seq": number // DEVICES,
        "amount": number % 9973 / 4,
        "note": "forty characters that no one reads again",
    }


def write_json(fields: Mapping[str, Any]) -> bytes:
    """Return the fields as JSON without white space."""
    return json.dumps(fields, separators=(",", ":")).encode()


def describe(number: int, fields: Fields = Fields.PLAIN) -> bytes:
    """Return one record as JSON."""
    record = make_fields(number)
    match fields:
        case Fields.PLAIN:
            pass
        case Fields.TEXTS:
            record = {name: str(value) for name, value in record.items()}
        case Fields.NESTED:
            record["note"] = {"words": "forty", "tags": ["no"], "count": 31}
    return write_json(record)


def to_record(number: int, timestamp_ms: int = 0, write: Write = describe) -> SampleRecord:
    """Return one record. Its key is its device, so the records of a device lie in one partition, in their order."""
    return SampleRecord(str(number % DEVICES).encode(), write(number), timestamp_ms)


def write_topic(
    services: Services, count: int, name: str = TOPIC, partitions: int = PARTITIONS, write: Write = describe
) -> Topic:
    """Create the topic and write ``count`` records."""
    value_bytes = 0

    def records() -> Iterator[SampleRecord]:
        nonlocal value_bytes
        for number in track(range(count), f"writing {count:,} records to {name}", transient=True):
            record = to_record(number, write=write)
            if partitions > DEVICES:
                # So many partitions have records only if there are more keys.
                record = replace(record, key=str(number).encode())
            value_bytes += len(record.value)
            yield record

    create_topic(services, name, partitions)
    produce(services.kafka_options, name, partitions, records(), lambda sent: None)
    return Topic(name, find_ends(services.kafka_options, name, partitions), value_bytes)


def delete_topics(options: Mapping[str, Any], names: Sequence[str]) -> None:
    """Delete the topics; the broker answers before their files are gone."""
    admin = open_admin(options)
    for answer in admin.delete_topics(list(names), request_timeout=CHANGING_SECONDS).values():
        answer.result()


def create_topic(services: Services, name: str, partitions: int = PARTITIONS) -> None:
    """Create an empty topic, in steps: a broker refuses to create 10,000 partitions at once."""
    options, made = services.kafka_options, min(partitions, PARTITIONS_AT_ONCE)
    ensure_topic(options, name, made, {})
    while made < partitions:
        made = min(partitions, made + PARTITIONS_AT_ONCE)
        admin = open_admin(dict(options))
        admin.create_partitions([NewPartitions(name, made)], request_timeout=CHANGING_SECONDS)[name].result()
        ensure_topic(options, name, made, {})
