"""Which settings the extra of a connection may have. All others are refused: a client would leave them out. Pure.

Kafka and schema registries have more rules: ``kafka_options``, ``registry_options``.
"""

import difflib
import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from batchledger.model.errors import ConfigurationError

POSTGRES_SETTINGS = (
    "sslmode", "sslrootcert", "sslcert", "sslkey", "sslpassword", "sslcrl", "sslcrldir", "sslcertmode", "sslsni",
    "sslnegotiation", "ssl_min_protocol_version", "ssl_max_protocol_version", "channel_binding", "require_auth",
    "passfile", "target_session_attrs", "application_name",
)  # fmt: skip
"""libpq's names. Waits and ``options`` are not among them: Batchledger sets its own."""

MAIL_SETTINGS = (
    "from_email", "to_email", "disable_ssl", "disable_tls", "ssl_context", "timeout", "retry_limit",
    "subject_template", "html_content_template", "auth_type", "access_token", "client_id", "client_secret",
    "tenant_id", "scope",
)  # fmt: skip
"""Airflow's SMTP provider reads these, and ``MailChannel`` reads ``to_email``."""

SPARK_SETTINGS_BY_TYPE: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "spark_connect": (
            "use_ssl", "ssl.ca.location", "ssl.certificate.location", "ssl.key.location", "stream_host", "stream_ports",
        ),
        "spark": (
            "queue", "deploy-mode", "spark-binary", "spark-home", "namespace", "rest-scheme", "rest-port",
            "principal", "keytab", "yarn_resourcemanager_webapp_address",
        ),
    }
)  # fmt: skip
"""Airflow's Spark provider reads these for spark-submit, and ``spark_server`` for Spark Connect."""

NO_HEADERS = (
    "verify", "cert", "proxies", "timeout", "stream", "allow_redirects", "max_redirects", "trust_env",
    "check_response", "auth_type",
)  # fmt: skip
"""Airflow's HTTP provider takes these as settings of its own client; here they would be sent as headers."""

_SWITCHES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {"use_ssl": ("true", "false"), "disable_ssl": ("true",), "disable_tls": ("true",)}
)
"""As a text, the SMTP provider takes ``false`` for true as well, and would not encrypt."""
_WIDGET = re.compile(r"extra__[a-z]+(_[a-z]+)*__")


def read_extra(
    connection: str, extra: Mapping[str, Any], allowed: Sequence[str], prefixes: tuple[str, ...] = ()
) -> dict[str, Any]:
    """Return the settings. Raises ConfigurationError with the first that is not allowed.

    ``prefixes`` begin further allowed names. Older forms of Airflow's call one ``extra__postgres__sslmode``.
    """
    for name, value in extra.items():
        if name not in allowed and not name.startswith(prefixes):
            nearest = difflib.get_close_matches(_WIDGET.sub("", name), allowed, n=1)
            hint = f"Did you mean {nearest[0]}?" if nearest else f"Allowed are {', '.join((*allowed, *prefixes))}."
            raise refuse_extra(connection, f"It has {name} in its extra, which Batchledger does not pass on. {hint}")
        texts = _SWITCHES.get(name)
        if texts is not None and not isinstance(value, bool) and str(value).lower() not in texts:
            raise refuse_extra(
                connection, f"Its {name} is {value!r}. Write it as true or false, without quotation marks."
            )
    return dict(extra)


def read_headers(connection: str, extra: Mapping[str, Any]) -> dict[str, str]:
    """Return the headers of a webhook: every key. Raises ConfigurationError for settings of Airflow's own client."""
    for name in extra:
        if name in NO_HEADERS:
            hint = "Every key is a header, apart from ssl.ca.location, ssl.certificate.location and ssl.key.location."
            raise refuse_extra(connection, f"It has {name} in its extra, which Batchledger does not pass on. {hint}")
    return {str(name): str(value) for name, value in extra.items()}


def refuse_extra(connection: str, why: str, advice: str = "") -> ConfigurationError:
    """Return the error of a connection whose extra cannot be used; ``why`` may be a fault without its full stop."""
    return ConfigurationError(
        f"Connection {connection!r} cannot be used. Nothing was opened.",
        why=why if why.endswith((".", "?")) else f"{why}.",
        advice=advice
        or f"Correct the extra of connection {connection!r}. The documentation lists what it may have: "
        "reference/connections",
        subject=connection,
    )
