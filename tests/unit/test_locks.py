"""What is installed is what the two locks name, by its digest; a list of it can be made, and weaknesses looked up."""

import json
import os
import re
import shlex
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

PRODUCT, TOOLS = ROOT / "requirements.txt", ROOT / "tests" / "requirements.txt"
_PACKAGE = re.compile(r"(?m)^([a-z0-9.-]+)(?:\[[^]]+\])?==(\S+)(.*)$")
_DIGEST = re.compile(r"--hash=sha256:([0-9a-f]{64})(?= |$)")


def read_lock(lock: Path) -> dict[tuple[str, str], set[str]]:
    """The digests of each package, by its name and version."""
    text = lock.read_text().replace("\\\n", " ")
    return {(name, version): set(_DIGEST.findall(rest)) for name, version, rest in _PACKAGE.findall(text)}


def make(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run make with the tools of this environment, whose packages count as installed. No proxy is asked."""
    command = ["make", "--old-file=.venv/.stamps/packages", f"BIN={Path(sys.executable).parent}", *arguments]
    environment = {**os.environ, "NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1"}
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=120)


@pytest.mark.parametrize("lock", [PRODUCT, TOOLS], ids=["product", "tools"])
def test_each_package_of_a_lock_has_digests(lock: Path) -> None:
    packages = read_lock(lock)
    assert len(packages) > 100
    assert [each for each, digests in packages.items() if not digests] == []


def test_lock_of_the_product_has_no_package_for_the_sake_of_tests() -> None:
    assert "(pyproject.toml:dev)" in TOOLS.read_text()
    assert "(pyproject.toml:dev)" not in PRODUCT.read_text()
    assert {"pytest", "ruff", "sphinx"}.isdisjoint(name for name, _ in read_lock(PRODUCT))


def test_both_locks_name_the_same_versions() -> None:
    product = read_lock(PRODUCT)
    names = {name for name, _ in product}
    assert [each for each in read_lock(TOOLS) if each[0] in names and each not in product] == []


def test_setup_installs_both_locks_and_nothing_without_a_digest() -> None:
    command = ["make", "--dry-run", "--always-make", ".venv/.stamps/packages"]
    shown = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=60).stdout
    first, second = re.findall(r"(?m)^.*pip install .*$", shown)
    assert first.endswith(" --require-hashes --requirement .venv/.stamps/setuptools.txt \\")
    locks = "--requirement requirements.txt --requirement tests/requirements.txt"
    assert f" --require-hashes --no-build-isolation {locks} " in second


def test_what_builds_packages_from_their_sources_has_a_digest_in_setup_and_image(tmp_path: Path) -> None:
    """Without isolation pip builds with what is installed. The same command cuts it out of the lock in both places."""
    program = r"sed -n '/^setuptools==/,/# via/p' requirements.txt"
    assert all(program in (ROOT / each).read_text() for each in ("Makefile", "Dockerfile"))
    cut = tmp_path / "setuptools.txt"
    cut.write_text(subprocess.run(shlex.split(program), cwd=ROOT, capture_output=True, text=True, check=True).stdout)
    ((name, _), digests), *others = read_lock(cut).items()
    assert (name, others) == ("setuptools", [])
    assert digests


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
