"""How the pipelines of a folder stand, as far as no service is needed to tell."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from batchledger.interfaces import surveys
from batchledger.model.findings import PipelineState
from batchledger.monitoring.health import PipelineHealth

CONNECTIONS = {
    "KAFKA_DEFAULT": '{"conn_type": "kafka", "extra": {"bootstrap.servers": "127.0.0.1:1"}}',
    "WAREHOUSE": "postgres://ana:pw@127.0.0.1:1/shop",
}
INTO_A_TOPIC = {"type": "kafka", "topic": "out"}


@pytest.mark.parametrize(
    ("changes", "missing"),
    [
        ({}, None),
        ({"sink": INTO_A_TOPIC}, None),
        ({"sink": {**INTO_A_TOPIC, "connection": "elsewhere"}}, "elsewhere"),
        ({"sink": {"type": "iceberg", "catalog": "lake_2", "table": "shop.orders"}}, "lake_2"),
        ({"source": {"format": "avro", "registry": "names"}}, "names"),
    ],
)
def test_pipeline_is_unknown_while_a_connection_of_its_sink_or_registry_is_missing(
    changes: dict[str, Any], missing: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its runs fail, whatever the ledger says of the last one."""
    for name, text in CONNECTIONS.items():
        monkeypatch.setenv(f"AIRFLOW_CONN_{name}", text)
    source = {"topics": ["orders"], "schema": "id bigint", **changes.get("source", {})}
    document = {"name": "orders", "sink": {"table": "orders"}, **changes, "source": source}
    path = tmp_path / "orders.yaml"
    path.write_text(yaml.safe_dump(document))
    monkeypatch.setattr(surveys, "find_pipeline_files", lambda: [path])
    well = PipelineHealth("orders", PipelineState.CAUGHT_UP, "", None)
    monkeypatch.setattr(surveys, "survey", lambda *_: well)
    (found,) = surveys.survey_pipelines(datetime.now(UTC), ["orders"])
    assert found.health.state is (PipelineState.UNKNOWN if missing else PipelineState.CAUGHT_UP)
    assert (missing or "") in found.health.detail
