"""Decodes values in memory, without Kafka and a table. A process of its own, settled as Spark's Python workers are."""

from collections.abc import Mapping
from functools import cache
from time import process_time

import pyarrow as pa

from batchledger.source.spark.tasks import settle_worker
from bench.formats import FORMATS, Decode, Format
from bench.orders import Order, serve

BLOCK_RECORDS = 10_000
CPU_SECONDS = "cpu_seconds"


def work(order: Order) -> Mapping[str, float]:
    """Decode so many blocks of the format that the order's settings name; return the CPU seconds of all threads.

    Raises RuntimeError if a record does not decode.
    """
    (format_,) = (each for each in FORMATS if each.name == order.settings["format"])
    decode, blocks = _open_decoder(format_), make_blocks(format_, int(order.settings["blocks"]))
    # Otherwise the first format pays for memory that the process has given back meanwhile.
    for each in blocks:
        decode(each)
    started = process_time()
    rows = [decode(each)[0].num_rows for each in blocks]
    seconds = process_time() - started
    if rows != [BLOCK_RECORDS] * len(blocks):
        raise RuntimeError(f"{sum(rows):,} records in {format_.name} were decoded, of {BLOCK_RECORDS * len(blocks):,}")
    return {CPU_SECONDS: seconds}


@cache
def make_blocks(format_: Format, count: int) -> list[pa.BinaryArray]:
    """Return the first records in a format, in blocks."""
    starts = range(0, count * BLOCK_RECORDS, BLOCK_RECORDS)
    return [pa.array(map(format_.write, range(start, start + BLOCK_RECORDS)), pa.binary()) for start in starts]


@cache
def _open_decoder(format_: Format) -> Decode:
    return format_.open_decoder()


def main() -> None:
    """Carry out orders with the collector of a worker, which leaves the objects of a block alone."""
    settle_worker()
    serve(work)


if __name__ == "__main__":
    main()
