"""What Airflow reads of this package as a provider, by the entry point ``apache_airflow_provider``.

Data alone, because every process of Airflow's reads it: the names of modules, and the forms of connections, a file
each in ``forms``, in the words of Airflow's provider.yaml. The plugin has an entry point of its own: named here too, it
would be loaded twice.
"""

import json
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

from batchledger import DISTRIBUTION

_NAME = "Batchledger"
_FORMS = Path(__file__).parent / "forms"
_OPTIONS = {
    "to_see_payloads": "see keys, values and whole errors",
    "to_decide": "accept, discard, skip and rewind",
    "to_destroy": "drop quarantine, and empty a table",
}
_BRINGING_IT, _BRINGING_IT_OF_APACHE = "apache-airflow-providers-{}", "apache-airflow-providers-apache-{}"


def get_provider_info() -> dict[str, Any]:
    """Return what the provider has. A type of connections that an installed provider of Airflow's has stays its own."""
    types = [path for path in sorted(_FORMS.glob("*.json")) if not _is_brought(path.stem)]
    return {
        "package-name": DISTRIBUTION,
        "name": _NAME,
        "description": "Exactly once, batch by batch, from Kafka into tables, topics and Iceberg tables.",
        "integrations": [{"integration-name": _NAME, "tags": ["service"]}],
        "connection-types": [json.loads(path.read_text("utf-8")) for path in types],
        "hooks": [_of("batchledger.interfaces.airflow.hooks")],
        "operators": [_of("batchledger.interfaces.airflow.operators")],
        "sensors": [_of("batchledger.interfaces.airflow.sensor")],
        "triggers": [_of("batchledger.interfaces.airflow.records_trigger", "batchledger.interfaces.airflow.sensor")],
        "task-decorators": [
            {"name": "ledger_batch", "class-name": "batchledger.interfaces.airflow.loaded_batches.ledger_batch_task"}
        ],
        "config": {
            "batchledger": {
                "description": "Which further right of Airflow's a user of the page needs, beside the one to trigger.",
                "options": {name: _describe_option(what) for name, what in _OPTIONS.items()},
            }
        },
        "extra-links": ["batchledger.interfaces.airflow.links.DataDocsLink"],
    }


def _describe_option(what: str) -> dict[str, Any]:
    text = f"A method and a resource that a user needs to {what}: DELETE dag, PUT connection or POST view NAME."
    return {"description": text, "version_added": "0.3.0", "type": "string", "example": "PUT connection", "default": ""}


def _of(*modules: str) -> dict[str, Any]:
    return {"integration-name": _NAME, "python-modules": list(modules)}


def _is_brought(type_: str) -> bool:
    """Whether a provider of Airflow's that is installed has this type: of two, Airflow takes one, and warns."""
    for name in (_BRINGING_IT.format(type_), _BRINGING_IT_OF_APACHE.format(type_)):
        try:
            distribution(name)
        except PackageNotFoundError:
            continue
        return True
    return False
