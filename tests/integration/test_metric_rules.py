"""What Prometheus itself says of the metrics, of the rules and of the board. It needs ``promtool`` and no service."""

import json
import re
from pathlib import Path

import pytest
import yaml
from prometheus_client.exposition import generate_latest

from batchledger.config.pipeline_file import DEFAULT_PIPELINES_FOLDER
from batchledger.interfaces.metrics.families import Families, build_families
from batchledger.interfaces.metrics.shipped import BOARD, RULES, read_shipped
from tests.programs import ProgramMissingError
from tests.prometheus import list_expressions, promtool
from tests.unit.test_metrics import LOOK, NOON, write

CASES = Path(__file__).parent / "alert_rules.yaml"


def test_promtool_has_no_complaint_about_the_metrics() -> None:
    done = promtool("check", "metrics", text=generate_latest(Families(build_families(LOOK, NOON))).decode())
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    done = promtool("check", "metrics", text=write(LOOK))
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_promtool_complains_about_a_metric_without_help() -> None:
    """The negative control."""
    text = re.sub(r"# HELP batchledger_up.*\n", "", write(LOOK))
    assert "batchledger_up no help text" in promtool("check", "metrics", text=text).stderr


def test_every_alert_fires_when_it_has_to_and_not_before() -> None:
    done = promtool("test", "rules", CASES.name, folder=CASES.parent)
    assert done.returncode == 0, done.stdout + done.stderr
    told = yaml.safe_load(CASES.read_text(encoding="utf-8"))
    tested = {case["alertname"] for test in told["tests"] for case in test["alert_rule_test"] if case["exp_alerts"]}
    rules = [rule for group in yaml.safe_load(read_shipped(RULES))["groups"] for rule in group["rules"]]
    assert tested == {rule["alert"] for rule in rules}


def test_rule_that_is_changed_fails_its_test(tmp_path: Path) -> None:
    """The negative control."""
    changed = read_shipped(RULES).replace("batchledger_unexplained_offsets > 0", "batchledger_unexplained_offsets > 99")
    (tmp_path / "rules.yaml").write_text(changed)
    test = CASES.read_text(encoding="utf-8")
    (tmp_path / "test.yaml").write_text(re.sub(r"(?m)^rule_files: .*$", "rule_files: [rules.yaml]", test))
    done = promtool("test", "rules", "test.yaml", folder=tmp_path)
    assert (done.returncode, "BatchledgerUnexplained" in done.stdout + done.stderr) == (1, True)


def check_expressions(expressions: list[str], folder: Path) -> int:
    """Let promtool parse expressions, as recording rules have them; return its exit code."""
    rules = [{"record": f"board:{number}", "expr": each} for number, each in enumerate(expressions)]
    (folder / "board.yaml").write_text(yaml.safe_dump({"groups": [{"name": "board", "rules": rules}]}))
    return promtool("check", "rules", "board.yaml", folder=folder).returncode


def test_every_expression_of_the_board_parses(tmp_path: Path) -> None:
    expressions = list_expressions(json.loads(read_shipped(BOARD)))
    assert check_expressions(expressions, tmp_path) == 0
    assert check_expressions([f"{expressions[0]})"], tmp_path) == 1, "the negative control"


def test_missing_prometheus_stops_a_test_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(DEFAULT_PIPELINES_FOLDER))
    with pytest.raises(ProgramMissingError, match="apt-get install --no-install-recommends prometheus"):
        promtool("--version")
