"""Batchledger in one warm process, as the command line runs it: plan, stage, audit, publish, batch after batch."""

import logging
import os
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from time import perf_counter
from typing import Any

from batchledger.config.pipeline_file import load_pipeline
from batchledger.database.sessions import keep_connections
from batchledger.lifecycle import run_batch
from batchledger.lifecycle.plans import plan
from batchledger.lifecycle.platform import load_positions
from batchledger.lifecycle.tracing import StepPart
from batchledger.wiring import build_platform
from bench.orders import Order, serve

RUN = f"bench-{os.getpid()}"


def drain(order: Order) -> Mapping[str, float]:
    """Run batches until the positions are at the ends; return the seconds of each step, summed over the batches."""
    seconds_by_step: defaultdict[str, float] = defaultdict(float)

    @contextmanager
    def measure(part: str, *_: Any, **__: Any) -> Iterator[None]:
        moment = perf_counter()
        yield
        # Both are parts of their transaction.
        if part not in (StepPart.PUBLISH_ROWS, StepPart.COMMIT_SINK):
            seconds_by_step[part.partition(".")[0]] += perf_counter() - moment

    platform = replace(build_platform(load_pipeline(order.name)), trace=measure)
    next_offsets = {each.partition.partition: each.next_offset for each in load_positions(platform).values()}
    while any(next_offsets.get(each, 0) < end for each, end in order.end_by_partition.items()):
        with measure("plan"):
            batch = plan(platform, RUN)
        if batch is not None:
            run_batch.take_through(platform, batch.batch_id, RUN)
            seconds_by_step["batches"] += 1
            next_offsets |= {each.partition.partition: each.until for each in batch.ranges}
    return seconds_by_step


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(name)s %(message)s")
    # Before the first order: a warm process has them imported.
    import batchledger.checks.integrity
    import batchledger.source.spark.session
    import batchledger.source.spark.stager  # noqa: F401

    with keep_connections():
        serve(drain)
