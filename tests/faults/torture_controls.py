"""Take one protection after the other out of the platform, on one stack, and print torture's report of each.

    python -m tests.faults.torture_controls

Standard output is one JSON document: the reports by the name of the protection.
"""

import json
import sys

from rich.console import Console

from batchledger.stack import Home
from batchledger.torture.rig import build_rig
from batchledger.torture.run import run_rounds, torture_home
from batchledger.torture.schedule import Protection, plan_control

ROUNDS = 1
SEED = 1


def main() -> None:
    """Run them all."""
    console = Console(stderr=True)
    with build_rig(torture_home(Home.of_project()), console.print) as rig:
        reports = {
            each: run_rounds(rig, plan_control(SEED, ROUNDS, each), SEED, console, each).as_document()
            for each in Protection
        }
    sys.stdout.write(json.dumps(reports))


if __name__ == "__main__":
    main()
