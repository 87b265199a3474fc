"""How Spark reaches a catalog in a PostgreSQL by its JDBC driver: as PyIceberg does by libpq, or not at all. Pure."""

from collections.abc import Mapping

from sqlalchemy import URL

from batchledger.model.errors import ConfigurationError

_NAME_BY_SETTING = {
    "sslmode": "sslmode",
    "sslrootcert": "sslrootcert",
    "sslcert": "sslcert",
    "sslkey": "sslkey",
    "sslpassword": "sslpassword",
    "sslnegotiation": "sslNegotiation",
    "channel_binding": "channelBinding",
}
_UNKNOWN_TO_JDBC = (
    "sslcrl", "sslcrldir", "sslcertmode", "ssl_min_protocol_version", "ssl_max_protocol_version", "require_auth",
)  # fmt: skip
"""They protect, so a connection without them would be another one."""
_KEY_ENDINGS = (".pk8", ".der", ".p12", ".pfx")
_CONVERT = "openssl pkcs8 -topk8 -nocrypt -outform DER -in client.key -out client.pk8"


def jdbc_properties(catalog: str, address: URL, spark: Mapping[str, str]) -> dict[str, str]:
    """Return the properties of Spark's catalog by which it logs in where ``address`` says.

    ``spark`` are the properties that differ there. Raises ConfigurationError if the driver of PostgreSQL cannot do what
    the address says.
    """
    given = {name: str(value) for name, value in address.query.items()}
    for name in _UNKNOWN_TO_JDBC:
        if name in given:
            raise _refuse(catalog, f"It has no setting {name}.", f"Remove {name} from its extra.")
    settings = {f"jdbc.{jdbc}": given[name] for name, jdbc in _NAME_BY_SETTING.items() if name in given}
    if given.get("sslmode") == "require" and "sslrootcert" in given:
        # libpq verifies the certificate then, and the driver would not.
        settings["jdbc.sslmode"] = "verify-ca"
    login = {"jdbc.user": address.username, "jdbc.password": address.password}
    settings |= {name: value for name, value in login.items() if value}
    used = {**settings, **spark}
    if used.get("jdbc.sslrootcert") == "system":
        raise _refuse(
            catalog, "It does not know sslrootcert system.", _say_otherwise("sslrootcert", "/etc/ssl/authorities.pem")
        )
    if not used.get("jdbc.sslkey", _KEY_ENDINGS[0]).endswith(_KEY_ENDINGS):
        raise _refuse(
            catalog,
            f"It reads a key in DER (.pk8, .der) or PKCS-12 (.p12, .pfx), and sslkey is {used['jdbc.sslkey']}.",
            f"Convert it: {_CONVERT}\n{_say_otherwise('sslkey', '/etc/ssl/client.pk8')}",
        )
    return {"uri": f"jdbc:postgresql://{address.host}:{address.port or 5432}/{address.database}", **settings}


def _say_otherwise(name: str, path: str) -> str:
    return f'Give Spark a file of its own in the extra: {{"spark": {{"jdbc.{name}": "{path}"}}}}'


def _refuse(catalog: str, why: str, advice: str) -> ConfigurationError:
    return ConfigurationError(
        f"Spark cannot connect to catalog {catalog} as its connection says. Nothing was opened.",
        why=f"Spark's driver of PostgreSQL: {why}",
        advice=advice,
        subject=catalog,
    )
