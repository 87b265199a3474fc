"""Batchledger in one warm process, as the command line runs it: plan, stage, audit, publish, batch after batch."""

import logging
import os
from collections import defaultdict
from collections.abc import Mapping
from time import perf_counter

from batchledger.config.pipeline_file import load_pipeline
from batchledger.database.sessions import keep_connections
from batchledger.lifecycle import run_batch
from batchledger.lifecycle.plans import plan
from batchledger.lifecycle.platform import Platform, load_positions
from batchledger.wiring import build_platform
from bench.orders import Order, serve

RUN = f"bench-{os.getpid()}"


def drain(order: Order) -> Mapping[str, float]:
    """Run batches until the positions are at the ends; return the seconds of each step, summed over the batches."""
    platform = build_platform(load_pipeline(order.name))
    next_offsets = {each.partition.partition: each.next_offset for each in load_positions(platform).values()}
    seconds_by_step: defaultdict[str, float] = defaultdict(float)
    while any(next_offsets.get(each, 0) < end for each, end in order.end_by_partition.items()):
        next_offsets |= _take_batch(platform, seconds_by_step)
    return seconds_by_step


def _take_batch(platform: Platform, seconds_by_step: "defaultdict[str, float]") -> dict[int, int]:
    """Take one batch through its life and time each step; return its next offsets."""
    moment = perf_counter()

    def lap(step: str) -> None:
        nonlocal moment
        moment, before = perf_counter(), moment
        seconds_by_step[step] += moment - before

    batch = plan(platform, RUN)
    lap("plan")
    if batch is None:
        return {}
    for step in (run_batch.stage, run_batch.audit, run_batch.publish):
        step(platform, batch.batch_id, RUN)
        lap(step.__name__)
    seconds_by_step["batches"] += 1
    return {each.partition.partition: each.until for each in batch.ranges}


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(name)s %(message)s")
    # Before the first order: a warm process has them imported.
    import batchledger.checks.integrity
    import batchledger.source.spark.session
    import batchledger.source.spark.stager  # noqa: F401

    with keep_connections():
        serve(drain)
