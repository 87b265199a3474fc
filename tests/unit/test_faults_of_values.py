"""A value that is no JSON object is explained by a place and a likeness, and by no byte of its own."""

import pytest

from batchledger.formats.decoding.faults import explain_fault
from batchledger.formats.decoding.meaning import UnfitError
from batchledger.formats.decoding.objects import (
    HALF_A_PAIR,
    NOT_ONE_OBJECT,
    NOT_UTF8,
    TOO_DEEP,
    parse_object,
)


@pytest.mark.parametrize(
    ("value", "fault"),
    [
        (b"", "it is empty"),
        (b" ", "it is empty"),
        (b"null", "it is null"),
        (b'[{"id":1}]', "it is an array"),
        (b'{"id":1', "it ends early, after 7 bytes"),
        (b'{"id":1}{"id":2}', "byte 9 of 16: trailing characters"),
        (b'\xef\xbb\xbf{"id":1}x', "byte 12 of 12: trailing characters"),
        (b"not json", "byte 5 of 8: invalid character"),
        (b'{"id":NaN}', "byte 7 of 10: invalid character"),
        (b'{"id":"\xff"}', "byte 8 of 10 is no UTF-8"),
        (b"\0\0\0\0\7abc", "byte 1 of 8: invalid character. It begins like Avro or Protobuf with the id of a schema"),
        (b"\x1f\x8b\x08\0", "byte 2 of 4 is no UTF-8. It begins like gzip"),
        (b"<html>", "byte 1 of 6: invalid character. It begins like XML or HTML"),
        (b'{"id":"\\ud800"}', None),
        (b"[" * 2_000, None),
        (b'{"id":1}', None),
    ],
    ids=ascii,
)
def test_fault_names_the_byte_and_never_quotes_it(value: bytes, fault: str | None) -> None:
    try:
        list(parse_object(value))
        error = ""
    except UnfitError as told:
        error = str(told)
    assert error in ("", NOT_ONE_OBJECT, NOT_UTF8, HALF_A_PAIR, TOO_DEEP)
    assert explain_fault(error, value) == fault
