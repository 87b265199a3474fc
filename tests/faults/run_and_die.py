"""Run one batch of a pipeline in a process of its own and die by SIGKILL at a named crash point.

    python -m tests.faults.run_and_die PIPELINE RUN POINT

The process really ends there: no handler runs, connections are left to the services to notice.
"""

import os
import signal
import sys

from batchledger import run_batch
from batchledger.config import load_pipeline
from batchledger.wiring import build_platform


def main() -> None:
    """Run and die."""
    pipeline, run, fatal_point = sys.argv[1:]

    def crash(point: str) -> None:
        if point == fatal_point:
            os.kill(os.getpid(), signal.SIGKILL)

    run_batch.run_once(build_platform(load_pipeline(pipeline), crash=crash), run)


if __name__ == "__main__":
    main()
