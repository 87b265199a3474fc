"""Which Kafka client options a connection or a pipeline file may set.

Allow-lists, not block-lists: Kafka login modules, interceptors, deserialisers and OAuth endpoints can run code or read
files (CVE-2025-27817, CVE-2025-27818; S136, S137). Group and reset options would let Kafka move a position that the
ledger owns. Connections use librdkafka's names, as Airflow's own Kafka provider does. No I/O.
"""

import difflib
from collections.abc import Mapping
from types import MappingProxyType

from batchledger.model.errors import ConfigurationError

CONNECTION_OPTIONS = (
    "bootstrap.servers", "client.id", "security.protocol", "sasl.mechanism", "sasl.username", "sasl.password",
    "ssl.ca.location", "ssl.endpoint.identification.algorithm",
)  # fmt: skip
SASL_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")

CONSUMER_OPTIONS = (
    "fetch.max.bytes", "fetch.max.wait.ms", "fetch.min.bytes", "max.partition.fetch.bytes", "receive.buffer.bytes",
    "client.rack",
)  # fmt: skip

REASON_BY_UNSAFE_OPTION: Mapping[str, str] = MappingProxyType(
    {
        "enable.auto.commit": "only the ledger moves offsets",
        "auto.commit.interval.ms": "only the ledger moves offsets",
        "group.id": "the ledger holds the positions, and the reader assigns partitions and never subscribes",
        "auto.offset.reset": "a position that no longer exists must stop the pipeline, not be replaced",
        "failondataloss": "lost records must stop the pipeline, not be skipped",
        "isolation.level": "set source.isolation instead",
        "max.poll.records": "the reader takes as many records at a time as have arrived",
        "key.deserializer": "records are read as bytes",
        "value.deserializer": "records are read as bytes",
        "key.serializer": "records are read as bytes",
        "value.serializer": "records are read as bytes",
        "interceptor.classes": "it would run foreign code between Kafka and the audit",
        "sasl.jaas.config": "login modules can run code (CVE-2025-27818); set sasl.mechanism, username and password",
        "sasl.login.callback.handler.class": "login modules can run code (CVE-2025-27818)",
        "sasl.client.callback.handler.class": "login modules can run code (CVE-2025-27818)",
        "sasl.oauthbearer.token.endpoint.url": "it lets a client read files and URLs (CVE-2025-27817)",
    }
)


def explain_refusal(option: str, allowed: tuple[str, ...]) -> str | None:
    """Return why ``option`` is refused, None when it is allowed."""
    if option in allowed:
        return None
    bare = option.removeprefix("kafka.").lower()
    if bare in REASON_BY_UNSAFE_OPTION:
        return f"{option} is refused: {REASON_BY_UNSAFE_OPTION[bare]}"
    nearest = difflib.get_close_matches(bare, allowed, n=1)
    hint = f"did you mean {nearest[0]}?" if nearest else f"allowed are {', '.join(allowed)}"
    return f"{option} is not an allowed Kafka option; {hint}"


def check_connection_options(connection: str, options: Mapping[str, object]) -> dict[str, str]:
    """Return the options of a Kafka connection as text. Raises ConfigurationError naming the connection."""
    for option in options:
        reason = explain_refusal(option, CONNECTION_OPTIONS)
        if reason is not None:
            raise ConfigurationError(
                f"Connection {connection!r} cannot be used. Nothing was opened.",
                why=f"{reason}.".replace("?.", "?"),
                advice=f"Correct the extra of connection {connection!r}.",
                subject=connection,
            )
    if not options.get("bootstrap.servers"):
        raise ConfigurationError(
            f"Connection {connection!r} names no broker. Nothing was opened.",
            why="bootstrap.servers is missing from its extra.",
            advice='Write into its extra: {"bootstrap.servers": "host:9092"}',
            subject=connection,
        )
    mechanism = options.get("sasl.mechanism")
    if mechanism is not None and mechanism not in SASL_MECHANISMS:
        raise ConfigurationError(
            f"Connection {connection!r} cannot be used. Nothing was opened.",
            why=f"Its sasl.mechanism {mechanism} is not one of {', '.join(SASL_MECHANISMS)}.",
            advice=f"Correct the extra of connection {connection!r}.",
            subject=connection,
        )
    return {option: str(value) for option, value in options.items()}
