"""What a DAG of one's own imports: ``from batchledger.airflow import BatchledgerTaskGroup``.

These names are a part of the stable surface; the reference lists them. Nothing heavy is imported here.
"""

from batchledger.interfaces.airflow.dags import build_dags
from batchledger.interfaces.airflow.operators import BatchledgerOperator
from batchledger.interfaces.airflow.task_group import BatchledgerTaskGroup, expand_groups

__all__ = ["BatchledgerOperator", "BatchledgerTaskGroup", "build_dags", "expand_groups"]
