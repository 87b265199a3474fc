"""What a DAG of one's own imports: ``from batchledger.airflow import BatchledgerTaskGroup``.

``Pipeline`` and what it is made of are the models of the pipeline file under shorter names.

These names are a part of the stable surface; the reference lists them. Each is imported when it is asked for, because
Airflow reads DAG files again and again.
"""

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from batchledger.config.python_pipelines import Pipeline
    from batchledger.config.sections import SourceConfig
    from batchledger.interfaces.airflow.dags import build_dags
    from batchledger.interfaces.airflow.loaded_batches import LoadedBatches
    from batchledger.interfaces.airflow.operators import BatchledgerOperator
    from batchledger.interfaces.airflow.records_trigger import RecordsTrigger
    from batchledger.interfaces.airflow.sensor import BatchPublishedSensor
    from batchledger.interfaces.airflow.task_group import BatchledgerTaskGroup, expand_groups
    from batchledger.interfaces.airflow.watches import WatchOperator, WatchTaskGroup
    from batchledger.sinks.kinds import SinkConfig

    # A key takes what a file has there, such as 5m. A checker of types knows only what becomes of it.
    Source: Callable[..., SourceConfig]
    Table: Callable[..., SinkConfig]
    Topic: Callable[..., SinkConfig]
    Iceberg: Callable[..., SinkConfig]

__all__ = [
    "BatchPublishedSensor",
    "BatchledgerOperator",
    "BatchledgerTaskGroup",
    "Iceberg",
    "LoadedBatches",
    "Pipeline",
    "RecordsTrigger",
    "Source",
    "Table",
    "Topic",
    "WatchOperator",
    "WatchTaskGroup",
    "build_dags",
    "expand_groups",
]

_ROOM = "interfaces.airflow"
_PLACE_BY_NAME = {
    "BatchPublishedSensor": f"{_ROOM}.sensor",
    "BatchledgerOperator": f"{_ROOM}.operators",
    "BatchledgerTaskGroup": f"{_ROOM}.task_group",
    "Iceberg": "sinks.kinds:IcebergSinkConfig",
    "LoadedBatches": f"{_ROOM}.loaded_batches",
    "Pipeline": "config.python_pipelines",
    "RecordsTrigger": f"{_ROOM}.records_trigger",
    "Source": "config.sections:SourceConfig",
    "Table": "sinks.kinds:PostgresSinkConfig",
    "Topic": "sinks.kinds:KafkaSinkConfig",
    "WatchOperator": f"{_ROOM}.watches",
    "WatchTaskGroup": f"{_ROOM}.watches",
    "build_dags": f"{_ROOM}.dags",
    "expand_groups": f"{_ROOM}.task_group",
}
"""The module of each name, and what it is called there if that differs."""


def __getattr__(name: str) -> Any:
    if name not in _PLACE_BY_NAME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, _, called = _PLACE_BY_NAME[name].partition(":")
    return getattr(import_module(f"batchledger.{module}"), called or name)
