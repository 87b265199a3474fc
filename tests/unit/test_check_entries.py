"""The ``checks`` of a pipeline file are validated completely, without Great Expectations, before anything is opened."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from batchledger.config.pipeline_file import PipelineConfig, read_pipeline_file
from batchledger.model.checks import OnFailure, RequestedCheck, Severity
from batchledger.model.errors import ConfigurationError

NOT_NULL = {"type": "expect_column_values_to_not_be_null", "column": "id"}
ROWS = {"type": "expect_table_row_count_to_be_between", "min_value": 1}
RECENT = {"type": "expect_batch_rows_to_be_near_recent"}


def read(folder: Path, *checks: object, **more: Any) -> PipelineConfig:
    content = {
        "name": "orders",
        "source": {"topics": ["orders"], "schema": "id string, amount double"},
        "sink": {"table": "orders"},
        "checks": list(checks),
        **more,
    }
    path = folder / "orders.yaml"
    path.write_text(yaml.safe_dump(content))
    return read_pipeline_file(path)


def requested(folder: Path, *checks: object, **more: Any) -> tuple[RequestedCheck, ...]:
    return read(folder, *checks, **more).requested_checks


def test_check_is_critical_and_blocks_unless_the_file_says_otherwise(tmp_path: Path) -> None:
    (check,) = requested(tmp_path, {**NOT_NULL, "mostly": 0.999})
    assert check == RequestedCheck(
        "expect_column_values_to_not_be_null(id)",
        "expect_column_values_to_not_be_null",
        {"column": "id", "mostly": 0.999},
        Severity.CRITICAL,
        OnFailure.BLOCK,
    )


def test_policy_of_the_file_holds_for_every_critical_check_without_one_of_its_own(tmp_path: Path) -> None:
    checks = [NOT_NULL, {**ROWS, "on_failure": "block"}, {**NOT_NULL, "severity": "warning"}]
    assert [each.on_failure for each in requested(tmp_path, *checks, on_check_failure="quarantine")] == [
        OnFailure.QUARANTINE,
        OnFailure.BLOCK,
        OnFailure.BLOCK,
    ]


def test_checks_have_names_of_their_own(tmp_path: Path) -> None:
    pair = {"type": "expect_column_pair_values_to_be_equal", "column_A": "id", "column_B": "amount"}
    listed = {"type": "expect_compound_columns_to_be_unique", "column_list": ["id", "amount"]}
    assert [each.name for each in requested(tmp_path, NOT_NULL, NOT_NULL, pair, listed, ROWS)] == [
        "expect_column_values_to_not_be_null(id)",
        "expect_column_values_to_not_be_null(id) #2",
        "expect_column_pair_values_to_be_equal(id, amount)",
        "expect_compound_columns_to_be_unique(id, amount)",
        "expect_table_row_count_to_be_between",
    ]


def test_columns_that_only_the_transform_knows_are_left_to_the_audit(tmp_path: Path) -> None:
    assert requested(tmp_path, {**NOT_NULL, "column": "made_up"}, transform="my.module:function")


def test_columns_of_provenance_may_be_checked(tmp_path: Path) -> None:
    assert requested(tmp_path, {**NOT_NULL, "column": "_timestamp"})


@pytest.mark.parametrize(
    ("check", "expected"),
    [
        ({**NOT_NULL, "type": "expect_column_values_to_not_be_nul"}, "did you mean 'expect_column_values_to_not_be_nu"),
        ({"type": "zzz"}, "'zzz' is not an expectation; write one of Great Expectations, or module:Class"),
        ({"column": "id"}, "checks.0.type: this key is required"),
        ({"type": NOT_NULL["type"], "colum": "id"}, "has no argument 'colum'; did you mean 'column'?"),
        ({**NOT_NULL, "severty": "info"}, "has no argument 'severty'; did you mean 'severity'?"),
        ({**NOT_NULL, "on_fail": "block"}, "has no argument 'on_fail'; did you mean 'on_failure'?"),
        ({"type": NOT_NULL["type"]}, "needs the argument 'column'"),
        ({**NOT_NULL, "column": "ids"}, "'ids' is not a column of source.schema; did you mean 'id'?"),
        ({**NOT_NULL, "mostly": 2}, "mostly: 2 is not allowed: 2 is greater than the maximum of 1"),
        ({**NOT_NULL, "mostly": "all"}, "mostly: 'all' is not allowed: allowed: number, object"),
        ({**NOT_NULL, "severity": "fatal"}, "'fatal' is not allowed; allowed: 'critical', 'warning' or 'info'"),
        ({**NOT_NULL, "on_failure": "drop"}, "'drop' is not allowed; allowed: 'block', 'quarantine' or 'publish'"),
        ({**NOT_NULL, "severity": "info", "on_failure": "block"}, "with severity info leave it out"),
        ({**ROWS, "on_failure": "quarantine"}, "names no failing rows, so none can be set aside"),
        (
            {"type": "expect_compound_columns_to_be_unique", "column_list": ["id"], "on_failure": "quarantine"},
            "names no failing rows",
        ),
        ({**RECENT, "min_ratio": 0.5, "on_failure": "quarantine"}, "names no failing rows"),
        (RECENT, "needs the argument 'min_ratio' or 'max_ratio'"),
        ({**RECENT, "min_ratio": 0.5, "batches": 3}, "batches: 3 is not allowed: 3 is less than the minimum of 5"),
        ({"type": "expect_newest_record_to_be_younger_than", "max_age": "soon"}, "max_age: 'soon' is not allowed"),
        ({"type": "expect_share_quarantined_to_be_at_most", "max_share": 5}, "max_share: 5 is not allowed"),
        ({"type": "expect_column_values_to_match_json_schema", "column": "id"}, "is not an expectation"),
        ({"type": "expect_table_row_count_to_equal_other_table", "other_table_name": "x"}, "is not an expectation"),
        ({"type": "no_such_module:Expect"}, "there is no module 'no_such_module', neither beside"),
        ({"suite": "no.json"}, "suite 'no.json' is not a suite of Great Expectations: there is no such file"),
        ({"suite": "no.json", "mostly": 1}, "'mostly' cannot be said of a suite; allowed: severity, on_failure"),
        ("expect_column_values_to_not_be_null", "checks.0: 'expect_column_values_to_not_be_null'"),
    ],
)
def test_refused_check_is_named_with_what_is_allowed(tmp_path: Path, check: object, expected: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        read(tmp_path, check)
    assert expected in str(refused.value)
    assert re.search(r"orders\.yaml:\d+:\d+: checks", str(refused.value))


def test_policy_quarantine_of_the_file_is_refused_beside_a_check_that_names_no_rows(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="_to_be_between names no failing rows") as refused:
        read(tmp_path, NOT_NULL, ROWS, on_check_failure="quarantine")
    assert refused.value.subject == str(tmp_path / "orders.yaml")


def test_class_of_ones_own_is_looked_for_beside_the_file_without_being_run(tmp_path: Path) -> None:
    (tmp_path / "my_checks.py").write_text("raise SystemExit\nclass ExpectReal: ...\n")
    (check,) = requested(tmp_path, {"type": "my_checks:ExpectReal", "column": "id", "anything": 1})
    assert check.name == "my_checks:ExpectReal(id)"
    with pytest.raises(ConfigurationError, match="'ExpectUnreal'; it has ExpectReal") as refused:
        read(tmp_path, {"type": "my_checks:ExpectUnreal"})
    assert refused.value.subject == str(tmp_path / "orders.yaml")


def test_suite_file_takes_the_place_of_its_entry_and_its_expectations_may_differ(tmp_path: Path) -> None:
    suite = {
        "name": "orders",
        "expectations": [
            {"type": "expect_column_values_to_not_be_null", "kwargs": {"column": "id"}, "meta": {}},
            {
                "type": "expect_table_row_count_to_be_between",
                "kwargs": {"min_value": 1},
                "meta": {"severity": "critical", "on_failure": "publish"},
            },
        ],
    }
    (tmp_path / "suite.json").write_text(json.dumps(suite))
    checks = requested(tmp_path, {"suite": "suite.json", "severity": "warning"}, NOT_NULL)
    assert [(each.name, each.severity, each.on_failure) for each in checks] == [
        ("expect_column_values_to_not_be_null(id)", Severity.WARNING, OnFailure.BLOCK),
        ("expect_table_row_count_to_be_between", Severity.CRITICAL, OnFailure.PUBLISH),
        ("expect_column_values_to_not_be_null(id) #2", Severity.CRITICAL, OnFailure.BLOCK),
    ]


def test_fault_in_a_suite_file_is_told_like_one_in_the_pipeline_file(tmp_path: Path) -> None:
    suite = {"expectations": [{"type": "expect_column_values_to_not_be_null", "kwargs": {"colum": "id"}}]}
    (tmp_path / "suite.json").write_text(json.dumps(suite))
    with pytest.raises(ConfigurationError, match="'colum'; did you mean 'column'") as refused:
        read(tmp_path, {"suite": "suite.json"})
    assert refused.value.subject == str(tmp_path / "orders.yaml")


def test_reading_checks_imports_no_great_expectations(tmp_path: Path) -> None:
    """Airflow parses DAG files through this module."""
    read(tmp_path, NOT_NULL)
    program = (
        "import sys; from pathlib import Path; from batchledger.config.pipeline_file import read_pipeline_file\n"
        f"read_pipeline_file(Path({str(tmp_path / 'orders.yaml')!r}))\n"
        "sys.exit('great_expectations' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
