"""What a DAG of one's own imports: ``from batchledger.airflow import BatchledgerTaskGroup``.

These names are a part of the stable surface; the reference lists them. Each is imported when it is asked for, because
Airflow reads DAG files again and again.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from batchledger.interfaces.airflow.dags import build_dags
    from batchledger.interfaces.airflow.loaded_batches import LoadedBatches
    from batchledger.interfaces.airflow.operators import BatchledgerOperator
    from batchledger.interfaces.airflow.records_trigger import RecordsTrigger
    from batchledger.interfaces.airflow.sensor import BatchPublishedSensor
    from batchledger.interfaces.airflow.task_group import BatchledgerTaskGroup, expand_groups

__all__ = [
    "BatchPublishedSensor",
    "BatchledgerOperator",
    "BatchledgerTaskGroup",
    "LoadedBatches",
    "RecordsTrigger",
    "build_dags",
    "expand_groups",
]

_MODULE_BY_NAME = {
    "BatchPublishedSensor": "sensor",
    "BatchledgerOperator": "operators",
    "BatchledgerTaskGroup": "task_group",
    "LoadedBatches": "loaded_batches",
    "RecordsTrigger": "records_trigger",
    "build_dags": "dags",
    "expand_groups": "task_group",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULE_BY_NAME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"batchledger.interfaces.airflow.{_MODULE_BY_NAME[name]}"), name)
