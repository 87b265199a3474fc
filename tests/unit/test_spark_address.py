"""Where the token of a Spark server on this machine is sent, and where Spark's own client would send it."""

import pytest
from pyspark.sql.connect.client import DefaultChannelBuilder

from batchledger.model.tls_files import TlsFiles
from batchledger.source.spark.channel import CertifiedChannelBuilder


@pytest.mark.parametrize(
    ("url", "endpoint"),
    [
        ("sc://localhost:15002/;token=secret", "ipv4:127.0.0.1:15002"),
        ("sc://localhost:15002", "ipv4:127.0.0.1:15002"),
        # A certificate says who is there, and by this name.
        ("sc://localhost:15002/;use_ssl=true;token=secret", "localhost:15002"),
        ("sc://spark.internal:15002/;use_ssl=true", "spark.internal:15002"),
        ("sc://[::1]:15002", "[::1]:15002"),
    ],
)
def test_localhost_is_one_address_where_another_user_cannot_listen_beside_the_server(url: str, endpoint: str) -> None:
    assert CertifiedChannelBuilder(url, TlsFiles()).endpoint == endpoint


def test_negative_control_spark_itself_leaves_the_address_to_the_resolver() -> None:
    assert DefaultChannelBuilder("sc://localhost:15002/;token=secret").endpoint == "localhost:15002"
