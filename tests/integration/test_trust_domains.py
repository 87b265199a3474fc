"""Pipelines that name the same Spark connection share Python workers; what one changes in them, the others meet."""

import sys
from collections.abc import Callable, Iterable, Iterator

import pyarrow as pa
import pytest
from airflow.sdk import BaseHook
from pyspark import cloudpickle

from batchledger.source.spark.stager import SparkStager
from tests.support import TestPipeline, Workplace

TASKS = 12
cloudpickle.register_pickle_by_value(sys.modules[__name__])
PatchOrLook = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def patch(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    import psycopg

    psycopg.overheard = True  # type: ignore[attr-defined]
    yield from look(batches)


def look(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    import psycopg

    for each in batches:
        yield pa.record_batch({"is_patched": [hasattr(psycopg, "overheard")] * each.num_rows})


def is_patched(pipeline: TestPipeline, code: PatchOrLook) -> bool:
    """Run code in the workers that the pipeline's batches would use, whether one of them is patched.

    A worker that has ended a task is the last to get another one, so many tasks meet each that was there before.
    """
    stager = pipeline.platform().make_stager()
    assert isinstance(stager, SparkStager)
    with stager.open_session() as session:
        found = session.range(0, TASKS, 1, TASKS).mapInArrow(code, "is_patched boolean").collect()
    return any(each.is_patched for each in found)


def test_code_of_a_trust_domain_never_meets_the_workers_of_another(
    workplace: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_PAYMENTS", BaseHook.get_connection("spark_default").get_uri())
    orders, returns, payments = workplace.create(), workplace.create(), workplace.create(spark="spark_payments")
    assert is_patched(orders, patch)
    assert is_patched(returns, look), "the negative control: pipelines of one domain share a worker"
    assert not is_patched(payments, look)
