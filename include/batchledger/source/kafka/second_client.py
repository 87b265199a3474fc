"""The second witness: a client of another lineage (aiokafka), which looks where librdkafka saw no record.

It shares no code with librdkafka: protocol, codecs and the filter of aborted transactions are written anew. A fault of
one client cannot vouch for itself (ADR 0037). It finds offsets and judges nothing.
"""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby
from time import monotonic
from typing import Any

from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as SecondPartition
from aiokafka.abc import AbstractTokenProvider
from aiokafka.errors import KafkaError
from typing_extensions import override

from batchledger.model.offsets import OffsetRange, intersect, merge_ranges, single_offset
from batchledger.source.kafka.clients import REQUEST_TIMEOUT_SECONDS, fetch_token, open_tls
from batchledger.source.kafka.requests import Isolation

# A new position costs a round trip, as much as reading so many unwanted records.
LONGEST_DETOUR_OFFSETS = 10_000
RECORDS_PER_POLL = 10_000
_POLL_MS = 20
_UNENCRYPTED = "Sending username and password in the clear"


def find_visible(
    options: Mapping[str, str], isolation: Isolation, ranges: Sequence[OffsetRange], deadline: float
) -> list[OffsetRange]:
    """Return the offsets within ``ranges`` at which a record is visible.

    Every range has to lie between the log start and the end that ``isolation`` gives. Raises TimeoutError when
    ``deadline`` (of the monotonic clock) passes first or no broker answers.
    """
    if not ranges:
        return []
    # A caller's thread may have an event loop of its own already, a page or a notebook, and a thread has one at most.
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, _find_visible(options, isolation, ranges, deadline)).result()


async def _find_visible(
    options: Mapping[str, str], isolation: Isolation, ranges: Sequence[OffsetRange], deadline: float
) -> list[OffsetRange]:
    ahead = {
        SecondPartition(partition.topic, partition.partition): list(group)
        for partition, group in groupby(merge_ranges(ranges), key=lambda each: each.partition)
    }
    seen: list[OffsetRange] = []
    logging.getLogger("aiokafka.conn").addFilter(_is_news)
    consumer = AIOKafkaConsumer(
        **to_settings(options),
        enable_auto_commit=False,
        auto_offset_reset="none",
        isolation_level=isolation,
        fetch_max_wait_ms=_POLL_MS,
        max_poll_records=RECORDS_PER_POLL,
    )
    try:
        await consumer.start()
        consumer.assign(list(ahead))
        for partition, asked in ahead.items():
            consumer.seek(partition, asked[0].start)
        while ahead:
            for partition, records in (await consumer.getmany(timeout_ms=_POLL_MS)).items():
                topic, number = partition
                seen += merge_ranges(single_offset(topic, number, record.offset) for record in records)
            for partition in list(ahead):
                _advance(consumer, ahead, partition, await consumer.position(partition))
            if ahead and monotonic() > deadline:
                raise TimeoutError(f"{next(iter(ahead.values()))[0]} was not read through in time")
    except KafkaError as error:
        raise TimeoutError(f"{type(error).__name__}: {error}") from error
    except UnicodeDecodeError as error:
        place = next(iter(ahead.values()))[0]
        raise TimeoutError(f"a record in or near {place} has a header whose name is not UTF-8") from error
    finally:
        await consumer.stop()
    return intersect(seen, ranges)


def _is_news(record: logging.LogRecord) -> bool:
    """Whether this client logs something else than an unencrypted login, which it does at each look.

    ``batchledger status`` names the connections that send one to another machine.
    """
    return record.msg != _UNENCRYPTED


def _advance(
    consumer: AIOKafkaConsumer, ahead: dict[Any, list[OffsetRange]], partition: SecondPartition, position: int
) -> None:
    """Take note that everything before ``position`` has been read; jump when the next range is far ahead."""
    left = [each for each in ahead[partition] if each.until > position]
    if not left:
        del ahead[partition]
        consumer.pause(partition)
    else:
        ahead[partition] = left
        if left[0].start - position > LONGEST_DETOUR_OFFSETS:
            consumer.seek(partition, left[0].start)


def to_settings(options: Mapping[str, str]) -> dict[str, Any]:
    """Translate checked librdkafka options into what this client calls the same."""
    protocol = options.get("security.protocol", "plaintext").upper()
    settings: dict[str, Any] = {
        "bootstrap_servers": options["bootstrap.servers"],
        "client_id": options.get("client.id", "batchledger"),
        "security_protocol": protocol,
        "request_timeout_ms": int(REQUEST_TIMEOUT_SECONDS * 1000),
    }
    if protocol.endswith("SSL"):
        settings["ssl_context"] = open_tls(options)
    match options.get("sasl.mechanism"):
        case None:
            pass
        case "OAUTHBEARER" | "AWS_MSK_IAM":
            settings |= {"sasl_mechanism": "OAUTHBEARER", "sasl_oauth_token_provider": _Tokens(options)}
        case mechanism:
            settings |= {
                "sasl_mechanism": mechanism,
                "sasl_plain_username": options["sasl.username"],
                "sasl_plain_password": options["sasl.password"],
            }
    return settings


class _Tokens(AbstractTokenProvider):  # type: ignore[misc]
    """Gives this client the tokens of the connection."""

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__()
        self._options = options

    @override
    async def token(self) -> str:
        return await asyncio.to_thread(fetch_token, self._options)

    @override
    def extensions(self) -> dict[str, str]:
        pairs = (
            each.partition("=") for each in self._options.get("sasl.oauthbearer.extensions", "").split(",") if each
        )
        return {name: value for name, _, value in pairs}
