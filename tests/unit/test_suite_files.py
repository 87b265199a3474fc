"""Suite files as Great Expectations itself exports them: what they say of severity holds, and can be overridden."""

import json
from pathlib import Path
from typing import Any

import great_expectations as gx
import pytest
import yaml
from great_expectations import expectations as gxe
from great_expectations.expectations.metadata_types import FailureSeverity

from batchledger.config.pipeline_file import read_pipeline_file
from batchledger.model.checks import OnFailure, RequestedCheck, Severity


def read_suite(folder: Path, metas: tuple[dict[str, Any], ...] = ({}, {}, {}), **entry: str) -> list[RequestedCheck]:
    """The checks of a suite without a severity, with a warning, and with an info."""
    severities: list[dict[str, Any]] = [{}, {"severity": FailureSeverity.WARNING}, {"severity": FailureSeverity.INFO}]
    expectations = [
        gxe.ExpectColumnValuesToNotBeNull(column=column, meta=meta, **severity)
        for column, meta, severity in zip("abc", metas, severities, strict=True)
    ]
    suite = gx.get_context(mode="ephemeral").suites.add(gx.ExpectationSuite("exported", expectations=expectations))
    (folder / "suite.json").write_text(json.dumps(suite.to_json_dict()))
    path = folder / "orders.yaml"
    content = {
        "name": "orders",
        "source": {"topics": ["orders"], "schema": "a string, b string, c string"},
        "sink": {"table": "orders"},
        "checks": [{"suite": "suite.json", **entry}],
    }
    path.write_text(yaml.safe_dump(content))
    return list(read_pipeline_file(path).requested_checks)


def test_exported_severity_holds(tmp_path: Path) -> None:
    """Read as critical, a warning would block."""
    found = read_suite(tmp_path)
    assert [each.severity for each in found] == [Severity.CRITICAL, Severity.WARNING, Severity.INFO]


@pytest.mark.parametrize("severity", Severity)
def test_entry_says_the_severity_of_all_because_the_library_exports_one_that_nobody_asked_for(
    tmp_path: Path, severity: Severity
) -> None:
    assert {each.severity for each in read_suite(tmp_path, severity=severity.value)} == {severity}


def test_meta_of_an_expectation_comes_before_both(tmp_path: Path) -> None:
    found = read_suite(tmp_path, ({"severity": "info"}, {}, {"severity": "critical"}), severity="warning")
    assert [each.severity for each in found] == [Severity.INFO, Severity.WARNING, Severity.CRITICAL]


def test_what_a_failure_does_is_said_of_the_critical_ones(tmp_path: Path) -> None:
    found = read_suite(tmp_path, on_failure="quarantine")
    assert [each.on_failure for each in found] == [OnFailure.QUARANTINE, OnFailure.BLOCK, OnFailure.BLOCK]
