"""The kept Spark Connect session survives being closed by others."""

import pytest
from airflow.providers.apache.spark.hooks.spark_connect import SparkConnectHook

from batchledger.adapters.spark.session import open_connect_session


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
