"""What Batchledger costs, measured beside what a user could run instead. See README.md."""

import os

# Airflow reads it when it is first imported.
os.environ.setdefault("AIRFLOW__LOGGING__LOGGING_LEVEL", "ERROR")
