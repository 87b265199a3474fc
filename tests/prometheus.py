"""Debian's Prometheus, as tests use it: ``promtool``, and a server that scrapes."""

import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import yaml

from tests.endpoints import free_port
from tests.programs import find_prometheus
from tests.support import wait_until


def promtool(*arguments: str, text: str = "", folder: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run promtool with a text on its standard input."""
    command = [find_prometheus("promtool"), *arguments]
    return subprocess.run(command, input=text, capture_output=True, text=True, timeout=60, check=False, cwd=folder)


def list_expressions(board: Mapping[str, Any]) -> list[str]:
    """Return every expression of a Grafana board, with something in the place of its variables."""
    return [fill_in(target["expr"]) for panel in board["panels"] for target in panel["targets"]]


def fill_in(expression: str, rate_interval: str = "5m") -> str:
    """Return an expression of a board for all pipelines, over an interval that Grafana would choose."""
    return expression.replace("$__rate_interval", rate_interval).replace("$pipeline", ".*")


@dataclass(frozen=True)
class TimeSeries:
    """A line of a panel: moments in Unix time, a value for each of them."""

    labels: Mapping[str, str]
    moments: tuple[float, ...]
    values: tuple[float, ...]


@dataclass(frozen=True)
class PrometheusServer:
    """A server that scrapes one target every second; ``url`` is its API."""

    url: str

    def query(self, expression: str) -> dict[tuple[tuple[str, str], ...], float]:
        """Return the value of each series by its labels, without its name, job and instance."""
        answer = self._ask("/api/v1/query", query=expression)
        left_out = ("__name__", "job", "instance")
        return {
            tuple(sorted((name, text) for name, text in each["metric"].items() if name not in left_out)): float(
                each["value"][1]
            )
            for each in answer["data"]["result"]
        }

    def query_range(self, expression: str, since: float, until: float, step_seconds: float) -> list[TimeSeries]:
        """Return the series of an expression between two moments in Unix time."""
        answer = self._ask(
            "/api/v1/query_range", query=expression, start=str(since), end=str(until), step=str(step_seconds)
        )
        return [
            TimeSeries(each["metric"], *zip(*((moment, float(value)) for moment, value in each["values"]), strict=True))
            for each in answer["data"]["result"]
        ]

    def list_targets(self) -> list[tuple[str, str]]:
        """Return the health of each target, and the error of its last scrape."""
        targets = self._ask("/api/v1/targets")["data"]["activeTargets"]
        return [(each["health"], each["lastError"]) for each in targets]

    def list_alerts(self) -> dict[str, str]:
        """Return the state of each alert by its name, unless it is inactive."""
        groups = self._ask("/api/v1/rules", type="alert")["data"]["groups"]
        return {rule["name"]: rule["state"] for each in groups for rule in each["rules"] if rule["state"] != "inactive"}

    def _ask(self, path: str, **parameters: str) -> Any:
        answer = httpx.get(f"{self.url}{path}", params=parameters, timeout=30, trust_env=False)
        assert answer.status_code == httpx.codes.OK, answer.text
        return answer.json()


@contextmanager
def serve_prometheus(
    folder: Path, target: str, token_file: Path, rules: str, **scrape: Any
) -> Iterator[PrometheusServer]:
    """Start a Prometheus on a free port that scrapes ``target`` with a token; end it afterwards."""
    (folder / "rules.yml").write_text(rules)
    configuration = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": ["rules.yml"],
        "scrape_configs": [
            {
                "job_name": "batchledger",
                "metrics_path": "/batchledger/metrics",
                "authorization": {"type": "Bearer", "credentials_file": str(token_file)},
                "static_configs": [{"targets": [target]}],
                **scrape,
            }
        ],
    }
    (folder / "prometheus.yml").write_text(yaml.safe_dump(configuration))
    address = f"127.0.0.1:{free_port()}"
    command = [
        find_prometheus("prometheus"),
        f"--config.file={folder / 'prometheus.yml'}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address={address}",
    ]
    with (folder / "prometheus.log").open("wb") as log, subprocess.Popen(command, stdout=log, stderr=log) as process:
        try:
            url = f"http://{address}"
            wait_until(lambda: is_ready(url), seconds=60, every=0.2)
            yield PrometheusServer(url)
        finally:
            process.terminate()


def is_ready(url: str) -> bool:
    """Whether the server answers."""
    try:
        return httpx.get(f"{url}/-/ready", timeout=5, trust_env=False).status_code == httpx.codes.OK
    except httpx.TransportError:
        return False
