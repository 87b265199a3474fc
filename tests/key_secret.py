"""Another secret than the services': the connections file comes before variables, so a copy of it takes its place."""

import json
from pathlib import Path

import pytest

from batchledger.local.stack.home import write_private
from batchledger.settings.connections import KEYS
from tests.conftest import SERVICES


def use_key_secret(monkeypatch: pytest.MonkeyPatch, folder: Path, secret: str | None) -> None:
    """Let this process, and those that it starts, find the secret in the folder; None: no connection for it."""
    found = json.loads(SERVICES.home.connections_file.read_text())
    del found[KEYS]
    if secret is not None:
        found[KEYS] = {"conn_type": "generic", "password": secret}
    file = folder / "connections.json"
    write_private(file, json.dumps(found))
    monkeypatch.setenv("AIRFLOW__SECRETS__BACKEND_KWARGS", json.dumps({"connections_file_path": str(file)}))
    # Airflow remembers where this process has looked for connections before.
    monkeypatch.setattr("airflow.sdk.configuration._secrets_backend_cache", {}, raising=False)
