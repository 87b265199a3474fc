"""Stage one batch inside a spark-submit process: arguments in, exit code out.

    spark-submit …/batchledger/jobs/stage_batch.py --pipeline flights --batch 17 --run my-run

Over Spark Connect the same step runs without this program. Connections come from Airflow's environment variables or
secrets backend, never from the arguments. Exit codes: 0 staged, 1 failed or left to a run that is at work on the batch,
2 usage, 3 a person has to decide or to change something: blocked, or
Kafka lets no one in.
"""

import argparse
import logging
import sys
from functools import partial

from batchledger.config.pipeline_file import load_pipeline
from batchledger.database.sessions import keep_connections
from batchledger.interfaces.cli.printing import print_error
from batchledger.interfaces.unexpected import explain_unexpected
from batchledger.lifecycle import run_batch
from batchledger.local.stack import local_folder
from batchledger.model.errors import BatchledgerError
from batchledger.settings.lookup import prepare_job
from batchledger.source.spark.session import open_submitted_session
from batchledger.wiring import build_platform


def main() -> int:
    """Run the stage step of one batch."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pipeline", required=True)
    parser.add_argument("--batch", required=True, type=int)
    parser.add_argument("--run", required=True, help="the execution that the attempt belongs to")
    parser.add_argument("--held", action="store_true", help="its starter is at work on the batch itself")
    arguments = parser.parse_args()
    prepare_job()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    name = f"batchledger-{arguments.pipeline}-{arguments.batch}"
    try:
        platform = build_platform(
            load_pipeline(arguments.pipeline),
            open_session=partial(open_submitted_session, name),
            held=arguments.batch if arguments.held else None,
        )
        with keep_connections():
            run_batch.stage(platform, arguments.batch, arguments.run)
    except BatchledgerError as error:
        print_error(error)
        return error.exit_code or 1
    except Exception as error:  # noqa: BLE001 (the edge of the process)
        what = f"the stage job of batch {arguments.batch} of {arguments.pipeline}"
        sys.stderr.write(f"{explain_unexpected(error, what, local_folder())}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
