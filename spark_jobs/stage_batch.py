"""Stage one batch inside a spark-submit process of your own: leads into ``batchledger.jobs.stage_batch``.

    spark-submit spark_jobs/stage_batch.py --pipeline flights --batch 17 --run my-run

The platform starts that module itself.
"""

import sys

from batchledger.jobs.stage_batch import main

if __name__ == "__main__":
    sys.exit(main())
