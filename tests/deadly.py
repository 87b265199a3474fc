"""A decoder whose library dies of some records, as pyarrow's reader of JSON once did."""

import ctypes
import os
import signal
from dataclasses import fields

import pyarrow as pa
import pyarrow.compute as pc
from typing_extensions import override

from batchledger.formats.decoding.decoder import Decoded, RecordDecoder

SEGFAULT, KILL, STALL, WAIT = b"segfault-4711", b"kill-4711", b"stall-4711", b"wait-4711"
GREED, RAISE = b"greed-4711", b"raise-4711"
_GREED_BYTES = 64 << 30


class DeadlyDecoder(RecordDecoder):
    """Does to its process what a record with one of the markers says."""

    @classmethod
    def of(cls, decoder: RecordDecoder) -> "DeadlyDecoder":
        """The same decoder, but deadly."""
        return cls(**{each.name: getattr(decoder, each.name) for each in fields(decoder)})

    @override
    def decode(self, records: pa.RecordBatch) -> Decoded:
        if _holds(records, SEGFAULT):
            ctypes.string_at(0)
        if _holds(records, KILL):
            os.kill(os.getpid(), signal.SIGKILL)
        while _holds(records, STALL):
            pass
        if _holds(records, WAIT):
            signal.pause()
        if _holds(records, GREED):
            bytearray(_GREED_BYTES)
        if _holds(records, RAISE):
            raise LookupError
        return super().decode(records)


def _holds(records: pa.RecordBatch, marker: bytes) -> bool:
    return bool(pc.any(pc.match_substring(records["value"], marker)).as_py())
