"""Where a schema registry is, and how to log in there. ``repr`` shows no secret."""

from dataclasses import dataclass, field

DEFAULT_TIMEOUT_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class RegistrySettings:
    """The way to a registry. With ``login`` the password is that user's; ``token`` is a bearer token instead.

    ``timeout_seconds`` bounds the wait for a connection, for the beginning of an answer, and for the rest of it.
    """

    url: str
    login: str | None = None
    password: str = field(default="", repr=False)
    token: str | None = field(default=None, repr=False)
    authority_file: str | None = None
    authority_text: str | None = field(default=None, repr=False)
    certificate_file: str | None = None
    key_file: str | None = None
    key_password: str | None = field(default=None, repr=False)
    timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS
