"""Records of a file, one a line, as a read of Kafka would give them.

A line is a JSON object with ``value``, and perhaps ``key``, ``headers``, ``topic``, ``partition``, ``offset`` and
``timestamp``. Bytes are written in four ways: a text stands for its bytes, null for none, ``{"base64": "…"}`` for any
bytes. Any other JSON stands for its own text, exactly as the line has it: ``1.10`` and a field that is given twice
reach the decoder. A file is bounded, and each mistake has its line.
"""

import binascii
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import msgspec
import pyarrow as pa

from batchledger.config.documents import DocumentError, read_text
from batchledger.config.faults import MOST_FAULTS
from batchledger.config.refusals import refuse
from batchledger.formats.records import RECORD_SCHEMA, write_headers
from batchledger.model.errors import FileFault
from batchledger.model.offsets import LARGEST_OFFSET, OffsetRange, merge_ranges, single_offset
from batchledger.model.quoting import quote

LARGEST_BYTES = 16 * 1024 * 1024
MOST_RECORDS = 10_000
ADVICE = 'A line is a JSON object such as {"value": {"id": 1}}; the documentation has the others: guides/try'

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)
_USUAL_MOMENT = "2026-01-01T00:00:00Z"
_NO_TIMESTAMP = -1
_NULL = msgspec.Raw(b"null")

Place = tuple[str, int, int]
"""Topic, partition, offset."""


class _Line(msgspec.Struct, forbid_unknown_fields=True):
    value: msgspec.Raw
    key: msgspec.Raw = _NULL
    headers: dict[str, msgspec.Raw] = {}
    topic: str | None = None
    partition: Annotated[int, msgspec.Meta(ge=0, lt=2**31)] = 0
    offset: Annotated[int, msgspec.Meta(ge=0, lt=LARGEST_OFFSET)] | None = None
    timestamp: int | str | None = _USUAL_MOMENT


_LINES = msgspec.json.Decoder(_Line)
_PARTS = msgspec.json.Decoder(dict[str, msgspec.Raw])
_TEXTS = msgspec.json.Decoder(str)


class _Mistake(NamedTuple):
    text: str
    column: int = 1


class _MistakeError(ValueError):
    """A line is none that can be read."""


@dataclass(frozen=True)
class RecordsOfFile:
    """The records in the order of their lines, with the columns of ``RECORD_SCHEMA``; pickled to the executors."""

    records: pa.RecordBatch = field(repr=False)
    line_by_place: Mapping[Place, int] = field(repr=False)

    @property
    def ranges(self) -> tuple[OffsetRange, ...]:
        """Exactly the offsets of the records."""
        return tuple(merge_ranges(single_offset(*place) for place in self.line_by_place))

    def find_line(self, place: Place) -> int:
        """Return the line of a record; 0 of a place that no record has, which only a transform makes."""
        return self.line_by_place.get(place, 0)

    def read(self, ranges: Iterable[OffsetRange]) -> Iterator[pa.RecordBatch]:
        """Yield the records of the ranges, which lie within ``ranges``."""
        number_by_place = {place: number for number, place in enumerate(self.line_by_place)}
        for each in ranges:
            topic, partition = each.partition.topic, each.partition.partition
            offsets = range(each.start, each.until)
            yield self.records.take(pa.array([number_by_place[topic, partition, offset] for offset in offsets]))


def read_records(path: Path, topics: Sequence[str]) -> RecordsOfFile:
    """Return the records of a file. Raises FileRefusedError with its mistakes."""
    try:
        lines = read_text(path, LARGEST_BYTES).split("\n")
    except OSError as error:
        refuse(path, [FileFault(1, 1, f"cannot be read: {error.strerror}")], ADVICE)
    except DocumentError as error:
        refuse(path, [FileFault(error.line, error.column, str(error))], ADVICE)
    numbered = [(number, line) for number, line in enumerate(lines, 1) if line.strip()]
    if not 0 < len(numbered) <= MOST_RECORDS:
        refuse(path, [FileFault(1, 1, f"it has {len(numbered):,} records; write 1 to {MOST_RECORDS:,}")], ADVICE)
    rows: list[dict[str, Any]] = []
    line_by_place: dict[Place, int] = {}
    faults: list[FileFault] = []
    for number, line in numbered:
        row = _read_line(line.encode(), number, topics)
        if isinstance(row, _Mistake):
            faults.append(FileFault(number, row.column, row.text))
            continue
        place = row["topic"], row["partition"], row["offset"]
        if (first := line_by_place.setdefault(place, number)) != number:
            faults.append(FileFault(number, 1, f"line {first} has the same topic, partition and offset"))
        rows.append(row)
    if faults:
        more = len(faults) - MOST_FAULTS
        refuse(
            path, [*faults[:MOST_FAULTS], *([FileFault(1, 1, f"and {more:,} faults more")] if more > 0 else [])], ADVICE
        )
    return RecordsOfFile(pa.RecordBatch.from_pylist(rows, RECORD_SCHEMA), line_by_place)


def _read_line(line: bytes, number: int, topics: Sequence[str]) -> dict[str, Any] | _Mistake:
    try:
        found = _LINES.decode(line)
        _require_once(line)
        headers = [(name, _read_bytes(each)) for name, each in found.headers.items()]
        key, value, timestamp_ms = _read_bytes(found.key), _read_bytes(found.value), _read_moment(found.timestamp)
    except msgspec.ValidationError as error:
        return _Mistake(str(error).replace("Object ", "the line ", 1))
    except msgspec.DecodeError as error:
        at = str(error).rpartition("(byte ")[2].rstrip(")")
        before = line[: int(at)] if at.isdigit() else b""
        return _Mistake("the line is not one JSON object", len(before.decode(errors="replace")) + 1)
    except _MistakeError as error:
        return _Mistake(str(error))
    except RecursionError:
        return _Mistake("it is nested too deeply; write the value as a text, whose content is not looked at")
    if found.topic not in (None, *topics):
        return _Mistake(f"topic: {quote(found.topic)} is none of source.topics: {', '.join(topics)}")
    return {
        "topic": found.topic or topics[0],
        "partition": found.partition,
        "offset": number - 1 if found.offset is None else found.offset,
        "timestamp_ms": timestamp_ms,
        "key": key,
        "value": value,
        "headers": write_headers(headers),
    }


def _require_once(line: bytes) -> None:
    """Refuse a key of the line, or a header, that is given twice. What lies within a value is the decoder's."""
    pairs = json.loads(line, object_pairs_hook=list, parse_int=str, parse_float=str)
    headers = [each for name, content in pairs if name == "headers" for each in content]
    for where, named in (("", pairs), ("headers: ", headers)):
        seen = set()
        for name, _ in named:
            if name in seen:
                raise _MistakeError(f"{where}{quote(name)} is given twice")
            seen.add(name)


def _read_bytes(raw: msgspec.Raw) -> bytes | None:
    token = bytes(raw).strip()
    if token == b"null":
        return None
    if token.startswith(b'"'):
        return _TEXTS.decode(token).encode()
    if not token.startswith(b"{") or (parts := _PARTS.decode(token)).keys() != {"base64"}:
        return token
    try:
        return binascii.a2b_base64(_TEXTS.decode(parts["base64"]).encode(), strict_mode=True)
    except (binascii.Error, msgspec.ValidationError) as error:
        raise _MistakeError(
            "base64: write bytes in base64, in quotes; if this is the JSON itself, write it as a text"
        ) from error


def _read_moment(written: int | str | None) -> int:
    """Return milliseconds since 1970, as Kafka has them."""
    if written is None:
        return _NO_TIMESTAMP
    if isinstance(written, int) and abs(written) <= LARGEST_OFFSET:
        return written
    try:
        moment = datetime.fromisoformat(str(written))
    except ValueError as error:
        raise _MistakeError(
            f"timestamp: {quote(written)} is none; write 2026-01-31T12:00:00Z, milliseconds since 1970, or null"
        ) from error
    return ((moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - _EPOCH) // _MILLISECOND
