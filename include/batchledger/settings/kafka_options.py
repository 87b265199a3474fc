"""Which Kafka client options a connection or a pipeline file may set.

Allow-lists, not block-lists: Kafka login modules, interceptors, deserialisers and OAuth endpoints can run code or read
files (CVE-2025-27817, CVE-2025-27818; S136, S137). Group and reset options would let Kafka move a position that the
ledger owns. Connections use librdkafka's names, as Airflow's own Kafka provider does. No I/O.
"""

import difflib
from collections.abc import Collection, Iterator, Mapping
from types import MappingProxyType
from urllib.parse import urlsplit

from batchledger.model.errors import ConfigurationError
from batchledger.settings.known_settings import refuse_extra

CONNECTION_OPTIONS = (
    "bootstrap.servers", "client.id", "security.protocol",
    "ssl.ca.location", "ssl.ca.pem", "ssl.endpoint.identification.algorithm",
    "ssl.certificate.location", "ssl.certificate.pem", "ssl.key.location", "ssl.key.pem", "ssl.key.password",
    "sasl.mechanism", "sasl.username", "sasl.password",
    "sasl.oauthbearer.token.endpoint.url", "sasl.oauthbearer.client.id", "sasl.oauthbearer.client.secret",
    "sasl.oauthbearer.scope", "sasl.oauthbearer.extensions", "https.ca.location", "https.ca.pem",
    "aws.region",
)  # fmt: skip
PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")

_PASSWORD = ("sasl.username", "sasl.password")
OPTIONS_BY_MECHANISM: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "PLAIN": _PASSWORD,
        "SCRAM-SHA-256": _PASSWORD,
        "SCRAM-SHA-512": _PASSWORD,
        "OAUTHBEARER": (
            "sasl.oauthbearer.token.endpoint.url", "sasl.oauthbearer.client.id", "sasl.oauthbearer.client.secret",
        ),
        "AWS_MSK_IAM": ("aws.region",),
    }
)  # fmt: skip
"""What each login needs. Java's clients call the one by AWS's identities so, too."""
MORE_BY_MECHANISM: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "OAUTHBEARER": (
            "sasl.oauthbearer.scope", "sasl.oauthbearer.extensions", "https.ca.location", "https.ca.pem",
        ),
    }
)  # fmt: skip
"""What a login may have besides."""

ALLOWED_ENDPOINTS = "BATCHLEDGER_TOKEN_ENDPOINTS"
"""The variable that lists the token endpoints which a connection may name, with commas between them."""

NO_KERBEROS = "Kerberos is not supported"

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
        "sasl.oauthbearer.jwks.endpoint.url": "it lets a client read files and URLs (CVE-2025-27817)",
        "sasl.oauthbearer.config": "it makes up a token that nothing has signed",
    }
)


def explain_refusal(option: str, allowed: tuple[str, ...]) -> str | None:
    """Return why ``option`` is refused, None when it is allowed."""
    if option in allowed:
        return None
    bare = option.removeprefix("kafka.").lower()
    if bare in REASON_BY_UNSAFE_OPTION:
        return f"{option} is refused: {REASON_BY_UNSAFE_OPTION[bare]}"
    if bare.startswith("sasl.kerberos."):
        return f"{option} is refused: {NO_KERBEROS}"
    nearest = difflib.get_close_matches(bare, allowed, n=1)
    hint = f"did you mean {nearest[0]}?" if nearest else f"allowed are {', '.join(allowed)}"
    return f"{option} is not an allowed Kafka option; {hint}"


def check_connection_options(
    connection: str, options: Mapping[str, object], token_endpoints: Collection[str] = ()
) -> dict[str, str]:
    """Return the options of a Kafka connection as text.

    ``token_endpoints`` are the addresses that the deployment allows as token endpoint. Raises ConfigurationError naming
    the connection.
    """
    given = {option: str(value) for option, value in options.items()}
    fault = next(_find_faults(given, token_endpoints), None)
    if fault is not None:
        advice = f"Correct the extra of connection {connection!r}."
        if ALLOWED_ENDPOINTS in fault:
            advice += (
                f"\nOr, if the endpoint may have the client's secret, add it to {ALLOWED_ENDPOINTS} in the environment "
                "of Airflow and of the command line, and start Airflow anew."
            )
        raise refuse_extra(connection, fault, advice)
    if not given.get("bootstrap.servers"):
        raise ConfigurationError(
            f"Connection {connection!r} names no broker. Nothing was opened.",
            why="bootstrap.servers is missing from its extra.",
            advice='Write into its extra: {"bootstrap.servers": "host:9092"}',
            subject=connection,
        )
    return given


def _find_faults(options: Mapping[str, str], token_endpoints: Collection[str]) -> Iterator[str]:
    """Yield what is wrong; a later fault means something only if there is no earlier one.

    Clients ignore a login that does not fit the protocol, and would connect without it, or in clear text.
    """
    refusals = (explain_refusal(option, CONNECTION_OPTIONS) for option in options)
    yield from filter(None, refusals)
    protocol = options.get("security.protocol", "PLAINTEXT").upper()
    mechanism = options.get("sasl.mechanism")
    if protocol not in PROTOCOLS:
        yield f"Its security.protocol {protocol} is not one of {', '.join(PROTOCOLS)}"
    if mechanism is not None and mechanism not in OPTIONS_BY_MECHANISM:
        known = f"Its sasl.mechanism {mechanism} is not one of {', '.join(OPTIONS_BY_MECHANISM)}"
        yield f"{known}; {NO_KERBEROS}" if mechanism == "GSSAPI" else known
    if protocol.startswith("SASL") and mechanism is None:
        yield f"Its security.protocol {protocol} needs sasl.mechanism: one of {', '.join(OPTIONS_BY_MECHANISM)}"
    if mechanism is not None and not protocol.startswith("SASL"):
        yield f"Its sasl.mechanism {mechanism} needs security.protocol SASL_SSL or SASL_PLAINTEXT, and not {protocol}"
    unused = _begin_with(options, "ssl.")
    if unused and not protocol.endswith("SSL"):
        yield f"{unused[0]} has no effect with security.protocol {protocol}, which does not encrypt"
    yield from _find_faults_of_login(options, mechanism)
    for what in ("ssl.ca", "ssl.certificate", "ssl.key", "https.ca"):
        if f"{what}.location" in options and f"{what}.pem" in options:
            yield f"{what}.location and {what}.pem say the same thing twice"
    if bool(_begin_with(options, "ssl.certificate.")) != bool(_begin_with(options, "ssl.key.")):
        yield "A client certificate needs ssl.certificate.location or .pem, and ssl.key.location or .pem"
    yield from _find_faults_of_tokens(options, token_endpoints)


def _find_faults_of_login(options: Mapping[str, str], mechanism: str | None) -> Iterator[str]:
    protocol = options.get("security.protocol", "").upper()
    if mechanism in ("OAUTHBEARER", "AWS_MSK_IAM") and protocol != "SASL_SSL":
        yield f"Its sasl.mechanism {mechanism} needs security.protocol SASL_SSL, since its token would let others in"
    needed = OPTIONS_BY_MECHANISM[mechanism] if mechanism else ()
    missing = [each for each in needed if not options.get(each)]
    if missing:
        yield f"Its sasl.mechanism {mechanism} needs {', '.join(missing)}"
    known = ("sasl.mechanism", *needed, *MORE_BY_MECHANISM.get(mechanism or "", ()))
    for option in _begin_with(options, "sasl.", "https.", "aws."):
        if option not in known:
            yield f"{option} has no effect with sasl.mechanism {mechanism or '(none)'}"


def _find_faults_of_tokens(options: Mapping[str, str], token_endpoints: Collection[str]) -> Iterator[str]:
    endpoint = options.get("sasl.oauthbearer.token.endpoint.url")
    if endpoint is None:
        return
    if urlsplit(endpoint).scheme != "https":
        yield f"Its token endpoint {endpoint} is not https, so the client's secret would travel in clear text"
    if endpoint not in token_endpoints:
        yield f"Its token endpoint {endpoint} is not among the ones that {ALLOWED_ENDPOINTS} lists in the environment"


def _begin_with(options: Mapping[str, str], *prefixes: str) -> list[str]:
    return [option for option in options if option.startswith(prefixes)]
