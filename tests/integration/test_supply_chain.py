"""A list of what is inside is made, weaknesses looked up, fragments joined: by tools in an environment of their own."""

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

import pytest
from typing_extensions import override

from tests.conftest import ROOT
from tests.unit.test_changelog import VERSION
from tests.unit.test_locks import PRODUCT, read_lock


def make(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run make, which installs the tools the first time. No proxy is asked for what is on this machine."""
    command = ["make", "--old-file=.venv/.stamps/environment", f"BIN={Path(sys.executable).parent}", *arguments]
    environment = {**os.environ, "NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1"}
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=300)


def test_the_list_of_what_is_inside_names_each_locked_package_with_its_digests() -> None:
    done = make("sbom")
    assert done.returncode == 0, done.stderr
    listed = json.loads((ROOT / ".local" / "sbom.cdx.json").read_text())["components"]
    found = {
        (each["name"], each["version"]): {
            digest["content"]
            for reference in each["externalReferences"]
            for digest in reference.get("hashes", ())
            if digest["alg"] == "SHA-256"
        }
        for each in listed
    }
    assert found == read_lock(PRODUCT)


class Weaknesses(BaseHTTPRequestHandler):
    """A server that speaks OSV's protocol, and knows a weakness of the package ``known``."""

    known: ClassVar[str] = ""
    asked: ClassVar[set[str]] = set()

    @override
    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""

    def do_POST(self) -> None:
        question = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        name = question["package"]["name"]
        self.asked.add(name)
        weakness = {"id": "PYSEC-2099-1", "affected": [{"package": {"name": name, "ecosystem": "PyPI"}}]}
        answer = json.dumps({"vulns": [weakness]} if name == self.known else {}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)


@pytest.fixture
def weaknesses(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[type[Weaknesses], str]]:
    """The server, and its address."""
    monkeypatch.setattr(Weaknesses, "asked", set())
    with ThreadingHTTPServer(("127.0.0.1", 0), Weaknesses) as server:
        threading.Thread(target=server.serve_forever).start()
        yield Weaknesses, f"http://127.0.0.1:{server.server_port}/v1/query"
        server.shutdown()


def test_a_look_for_weaknesses_asks_about_each_locked_package(weaknesses: tuple[type[Weaknesses], str]) -> None:
    """A package with a condition may be for another platform."""
    server, url = weaknesses
    always = set(re.findall(r"(?m)^([a-z0-9.-]+)(?:\[[^]]+\])?==\S+ \\$", PRODUCT.read_text()))
    assert len(always) > 100
    done = make("audit", f"OSV={url}")
    assert done.returncode == 0, done.stdout + done.stderr
    assert always <= server.asked


def test_a_look_for_weaknesses_fails_if_there_is_one(
    weaknesses: tuple[type[Weaknesses], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    server, url = weaknesses
    monkeypatch.setattr(server, "known", "jinja2")
    done = make("audit", f"OSV={url}")
    assert done.returncode != 0
    assert "PYSEC-2099-1" in done.stdout


def test_a_look_for_weaknesses_fails_if_the_service_cannot_be_asked() -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        done = make("audit", f"OSV=http://127.0.0.1:{closed.getsockname()[1]}/v1/query")
    assert done.returncode != 0
    assert "Connection refused" in done.stderr


def test_a_look_for_weaknesses_lets_no_package_pass_that_the_service_does_not_know() -> None:
    assert " --strict " in make("--dry-run", "audit").stdout


def test_tool_joins_fragments_above_the_newest_release_and_removes_them(tmp_path: Path) -> None:
    for name in ("pyproject.toml", "CHANGELOG.md"):
        shutil.copy(ROOT / name, tmp_path)
    shutil.copytree(ROOT / "changelog.d", tmp_path / "changelog.d")
    fragment = tmp_path / "changelog.d" / "+a-change.changed.md"
    fragment.write_text("**Zoo**\nBatches end\nsooner.\n")
    (tmp_path / "changelog.d" / "+what.lead.md").write_text("A version\nof rest.\n")
    assert make(".local/tools/.stamp").returncode == 0
    command = [
        ROOT / ".local" / "tools" / "bin" / "towncrier",
        "build",
        "--yes",
        "--version",
        "99.0.0",
        "--date",
        "2099-01-01",
    ]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    assert not fragment.exists()
    text = (tmp_path / "CHANGELOG.md").read_text()
    entry = "**Zoo**\n\n- Batches end\n  sooner.\n"
    parts = ["## [99.0.0] - 2099-01-01", "A version\nof rest.\n\n###", "### Changed", entry, f"## [{VERSION}]"]
    assert parts == sorted(parts, key=text.index)
