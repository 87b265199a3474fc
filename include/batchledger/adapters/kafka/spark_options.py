"""Translates client options of librdkafka for Spark's Kafka source, tuned to read in bulk. No I/O.

The configuration has checked before which options are allowed.
"""

from collections.abc import Mapping

_TUNED_FOR_BULK_READS = {
    "max.poll.records": "20000",
    "max.partition.fetch.bytes": str(16 * 1024 * 1024),
    "fetch.max.bytes": str(64 * 1024 * 1024),
    # Spark asks for the ends of the log after each fetch, on the connection that fetches ahead. At the end of the log
    # the answer waits until that fetch is given up, half a second by default.
    "fetch.max.wait.ms": "10",
    "request.timeout.ms": "15000",
    "default.api.timeout.ms": "25000",
}
_LOGIN_MODULES = {
    "PLAIN": "plain.PlainLoginModule",
    "SCRAM-SHA-256": "scram.ScramLoginModule",
    "SCRAM-SHA-512": "scram.ScramLoginModule",
}


def to_spark_options(connection_options: Mapping[str, str], consumer_options: Mapping[str, str]) -> dict[str, str]:
    """Translate checked librdkafka options into the options of Spark's Kafka source (Java client names)."""
    java = {
        option: value
        for option, value in connection_options.items()
        if option in ("bootstrap.servers", "client.id", "security.protocol", "sasl.mechanism")
        or option == "ssl.endpoint.identification.algorithm"
    }
    if "ssl.ca.location" in connection_options:
        java |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": connection_options["ssl.ca.location"]}
    if "sasl.mechanism" in connection_options:
        java["sasl.jaas.config"] = _login_module(connection_options)
    java = {**_TUNED_FOR_BULK_READS, **java, **consumer_options}
    if "fetch.min.bytes" in consumer_options and "fetch.max.wait.ms" not in consumer_options:
        # If a user asks for more bytes at once, Kafka's default wait applies.
        del java["fetch.max.wait.ms"]
    return {f"kafka.{option}": value for option, value in java.items()}


def _login_module(options: Mapping[str, str]) -> str:
    module = _LOGIN_MODULES[options["sasl.mechanism"]]
    user, password = (_quote(options.get(name, "")) for name in ("sasl.username", "sasl.password"))
    return f"org.apache.kafka.common.security.{module} required username={user} password={password};"


def _quote(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
