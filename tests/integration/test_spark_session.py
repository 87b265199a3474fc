"""The kept Spark Connect session survives being closed by others, and its workers are forked with their packages."""

from collections.abc import Iterable, Iterator

import pyarrow as pa
import pytest
from airflow.providers.apache.spark.hooks.spark_connect import SparkConnectHook
from pyspark.sql.functions import spark_partition_id

from batchledger.source.spark.session import count_slots, open_connect_session


@pytest.mark.usefixtures("spark")
def test_session_is_kept_from_one_use_to_the_next_and_replaced_once_it_was_closed() -> None:
    url = SparkConnectHook(conn_id="spark_default").get_connection_url()
    with open_connect_session(url, "kept") as first:
        kept_id = first.session_id
        first.conf.set("spark.sql.shuffle.partitions", "7")
    with open_connect_session(url, "kept") as second:
        assert second.session_id == kept_id
        assert second.conf.get("spark.sql.shuffle.partitions") == "7"
        second.stop()
    with open_connect_session(url, "kept") as third:
        assert third.session_id != kept_id
        assert third.range(3).count() == 3


@pytest.mark.usefixtures("spark")
def test_server_says_how_many_tasks_run_side_by_side() -> None:
    url = SparkConnectHook(conn_id="spark_default").get_connection_url()
    with open_connect_session(url, "slots") as session:
        tasks = session.range(1_000).select(spark_partition_id()).distinct().collect()
        assert count_slots(session) == len(tasks)
        session.conf.set("spark.sql.leafNodeDefaultParallelism", "7")
        assert count_slots(session) == 7
        session.conf.unset("spark.sql.leafNodeDefaultParallelism")


@pytest.mark.usefixtures("spark")
def test_python_workers_are_forked_from_a_process_that_has_imported_their_packages() -> None:
    def look(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import sys

        import psutil

        has_imported = "pyiceberg.io.pyarrow" in sys.modules
        for each in batches:
            parent = " ".join(psutil.Process().parent().cmdline())
            yield pa.record_batch({"parent": [parent] * each.num_rows, "has_imported": [has_imported] * each.num_rows})

    url = SparkConnectHook(conn_id="spark_default").get_connection_url()
    with open_connect_session(url, "packages") as session:
        (found,) = session.range(0, 1, 1, 1).mapInArrow(look, "parent string, has_imported boolean").collect()
    assert "batchledger.jobs.python_workers" in found.parent
    assert found.has_imported
