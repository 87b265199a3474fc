"""Stage one batch inside a spark-submit process: leads into ``batchledger.jobs.stage_batch``, which has the options.

spark-submit spark_jobs/stage_batch.py --pipeline flights --batch 17 --run my-run
"""

import sys

from batchledger.jobs.stage_batch import main

if __name__ == "__main__":
    sys.exit(main())
