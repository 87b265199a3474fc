"""Where a value that was set aside stops being one JSON object, for people who look at it."""

import re

import msgspec

from batchledger.formats.decoding.meaning import kind_of
from batchledger.formats.decoding.nested import parse_fields
from batchledger.formats.decoding.objects import BYTE_ORDER_MARK, NOT_ONE_OBJECT, NOT_UTF8

_MALFORMED = re.compile(r"JSON is malformed: (?P<what>.+) \(byte (?P<place>\d+)\)")
_FIRST_BYTES = (
    (b"\x1f\x8b", "gzip"),
    (b"\x28\xb5\x2f\xfd", "zstd"),
    (b"PK\x03\x04", "a zip archive"),
    (b"Obj\x01", "a file of Avro"),
    (b"PAR1", "a file of Parquet"),
    (b"\xff\xfe", "UTF-16"),
    (b"\xfe\xff", "UTF-16"),
    (b"<", "XML or HTML"),
)
_FRAME_BYTES = 5


def explain_fault(error: str, value: bytes) -> str | None:
    """Say where a value stops being one JSON object, and what it begins like. It quotes no byte.

    ``error`` is why it is set aside; None if that is another reason. Bytes are counted from 1. Example: ``byte 443 of
    450: trailing characters``.
    """
    if error not in (NOT_ONE_OBJECT, NOT_UTF8):
        return None
    content = value.removeprefix(BYTE_ORDER_MARK)
    before, size = len(value) - len(content) + 1, len(value)
    try:
        value.decode()
        list(parse_fields(content))
    except UnicodeDecodeError as wrong:
        where = f"byte {wrong.start + 1:,} of {size:,} is no UTF-8"
    except msgspec.ValidationError:
        token = content.strip()
        where = f"it is {'null' if token == b'null' else kind_of(token)}"
    except msgspec.DecodeError as wrong:
        found = _MALFORMED.fullmatch(str(wrong))
        where = _explain_place(found["what"], int(found["place"]) + before, size) if found else _explain_end(value)
    else:
        return None
    likeness = _explain_beginning(value)
    return f"{where}. It begins like {likeness}" if likeness else where


def _explain_place(what: str, place: int, size: int) -> str:
    # The library has looked at one such byte before it counts.
    place -= what == "trailing characters"
    return f"byte {place:,} of {size:,}: {what}"


def _explain_end(value: bytes) -> str:
    return f"it ends early, after {len(value):,} bytes" if value.strip() else "it is empty"


def _explain_beginning(value: bytes) -> str | None:
    if value[:1] == b"\0" and len(value) >= _FRAME_BYTES:
        return "Avro or Protobuf with the id of a schema"
    return next((what for first, what in _FIRST_BYTES if value.startswith(first)), None)
