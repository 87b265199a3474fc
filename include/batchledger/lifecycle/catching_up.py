"""Take batches until everything is published that was readable at the beginning.

Records that arrive meanwhile do not count: a producer that never rests would leave no end.
"""

import logging
import time
from collections.abc import Callable, Iterator, Mapping

from batchledger.lifecycle.at_work import Wait, wait_until_left
from batchledger.lifecycle.platform import Platform, StageStep, load_positions
from batchledger.lifecycle.run_batch import run_once
from batchledger.model.batch import Batch
from batchledger.model.errors import AtWorkError
from batchledger.model.offsets import TopicPartition

logger = logging.getLogger(__name__)


def catch_up(
    platform: Platform, name_run: Callable[[], str], stage_step: StageStep | None = None, wait: Wait = time.sleep
) -> Iterator[Batch]:
    """Yield each published batch, until the positions have reached the log ends of the first moment.

    ``name_run`` names the run of each batch; ``stage_step`` as for ``run_once``. Another run that is at work on the
    open batch is waited for, however long it takes. Ends earlier when nothing is left to do: what is held back by an
    open transaction, or is too little for a batch, is not waited for. Raises what ``run_once`` raises.
    """
    log = platform.source.read_log(platform.rules.topics).log_by_partition
    end_by_partition = {partition: each.end for partition, each in log.items()}
    while True:
        run = name_run()
        try:
            batch = run_once(platform, run, stage_step=stage_step)
        except AtWorkError as error:
            logger.info("%s This run waits for it.", error.message)
            wait_until_left(platform, error.batch_id, run, wait)
        else:
            if batch is None:
                return
            yield batch
        if _has_reached(platform, end_by_partition):
            return


def _has_reached(platform: Platform, end_by_partition: Mapping[TopicPartition, int]) -> bool:
    """Whether nothing is left before the ends. A partition without a position was never planned."""
    positions = load_positions(platform)
    return all(
        partition in positions and positions[partition].next_offset >= end
        for partition, end in end_by_partition.items()
    )
