"""A library that dies of some records. Spark's workers import it when they decode records of a pipeline under torture.

Real ones do so until their record is known: pyarrow's reader of JSON died of a number of eleven characters.
"""

import ctypes
from dataclasses import fields, replace
from typing import cast

import pyarrow as pa
import pyarrow.compute as pc
from typing_extensions import override

from batchledger.formats.decoding.decoder import Decoded, RecordDecoder
from batchledger.local.torture.records import DEADLY
from batchledger.ports import Stager
from batchledger.source.spark.stager import SparkStager


class DeadlyDecoder(RecordDecoder):
    """Decodes as the platform does, but a record with the marker ends its process by SIGSEGV."""

    @override
    def decode(self, records: pa.RecordBatch) -> Decoded:
        if pc.any(pc.match_substring(records["value"], DEADLY.encode())).as_py():
            ctypes.string_at(0)
        return super().decode(records)


def decode_deadly(stager: Stager) -> Stager:
    """Return the stager, whose workers decode by that library."""
    decoder = cast("SparkStager", stager).decoder
    deadly = DeadlyDecoder(**{each.name: getattr(decoder, each.name) for each in fields(decoder)})
    return replace(cast("SparkStager", stager), decoder=deadly)
