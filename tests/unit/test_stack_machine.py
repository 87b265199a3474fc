"""One sentence says what the machine lacks, and names what to do."""

import hashlib
import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from batchledger.local.stack import jars, machine
from batchledger.local.stack.home import Home
from batchledger.model.errors import SetupError


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(root=tmp_path, local=tmp_path, cache=tmp_path / "cache", pipelines=tmp_path)


FakeJava = Callable[[str], Path]


@pytest.fixture
def fake_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeJava:
    """Put a script first on the path that is ``java``."""

    def install(script: str) -> Path:
        java = tmp_path / "bin" / "java"
        java.parent.mkdir()
        java.write_text(f"#!/bin/sh\n{script}\n")
        java.chmod(0o755)
        monkeypatch.setenv("PATH", str(java.parent), prepend=":")
        monkeypatch.delenv("JAVA_HOME", raising=False)
        return java

    return install


@pytest.mark.parametrize("version", ["17.0.15", "21", "25.0.1"])
def test_a_new_java_is_found(fake_java: FakeJava, version: str) -> None:
    java = fake_java(f"""echo 'openjdk version "{version}" 2025-04-15' >&2""")
    assert machine.find_java() == java


@pytest.mark.parametrize("version", ["1.8.0_402", "11.0.2"])
def test_an_old_java_is_refused(fake_java: FakeJava, version: str) -> None:
    java = fake_java(f"""echo 'openjdk version "{version}"' >&2""")
    with pytest.raises(SetupError, match=r"Java is too old\.\nExpected 17 or") as refused:
        machine.find_java()
    assert f'found version "{version[:2]}' in str(refused.value)
    assert f"at {java}." in refused.value.why
    assert "Install Java 17" in refused.value.advice


def test_a_missing_java_is_told(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match=r"Java is missing\.\nInstall Java 17 or"):
        machine.find_java({"PATH": str(tmp_path)})


def test_a_java_home_without_java_is_told(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match=f"{tmp_path}/bin/java: No such file"):
        machine.find_java({"JAVA_HOME": str(tmp_path)})


def test_a_taken_port_is_told_with_its_service_and_variable() -> None:
    with socket.socket() as taken, socket.socket() as free:
        for one in (taken, free):
            one.bind(("127.0.0.1", 0))
        taken.listen()
        kafka, spark = taken.getsockname()[1], free.getsockname()[1]
        free.close()
        with pytest.raises(SetupError, match=rf"port {kafka} for kafka\.") as told:
            machine.check_ports(["kafka", "spark"], {"kafka": kafka, "spark": spark})
        assert "set BATCHLEDGER_KAFKA_PORT" in str(told.value)
        assert "spark" not in str(told.value)


def test_a_full_disk_is_told(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "NEEDED_BYTES", 2**62)
    with pytest.raises(SetupError, match=f"GiB below {home.local}, found") as told:
        machine.check_disk(home)
    assert "Make room" in str(told.value)


@pytest.fixture
def own_jar(home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the only file of the list ``own`` belongs. Its digest says that it holds ``pinned``."""
    lists = tmp_path / "ivy"
    lists.mkdir()
    (lists / "own.xml").write_text('<m><dependency name="own" rev="1.0" conf="default->default"/></m>')
    (lists / "jars.sha256").write_text(f"{hashlib.sha256(b'pinned').hexdigest()}  own/own-1.0.jar\n")
    monkeypatch.setattr(jars, "_LISTS", lists)
    return home.cache / "jars" / "own" / "own-1.0.jar"


def retrieve(content: str) -> str:
    """A script that does as Ivy does: it writes the file where its last argument, a pattern, says."""
    return f"""[ "$1" = -version ] && echo 'openjdk version "17"' >&2 && exit
for pattern; do :; done
mkdir -p "${{pattern%/*}}" && printf {content} > "${{pattern%/*}}"/own-1.0.jar"""


def test_a_complete_list_of_jars_starts_no_java(home: Home, own_jar: Path, fake_java: FakeJava) -> None:
    fake_java("exit 1")
    own_jar.parent.mkdir(parents=True)
    own_jar.write_text("pinned")
    assert jars.fetch_jars(home, "own") == [own_jar]


def test_a_jar_is_fetched(home: Home, own_jar: Path, fake_java: FakeJava) -> None:
    fake_java(retrieve("pinned"))
    assert jars.fetch_jars(home, "own") == [own_jar]


def test_stacks_that_start_at_once_fetch_once(home: Home, own_jar: Path, fake_java: FakeJava, tmp_path: Path) -> None:
    """Otherwise the later one takes the files away while the earlier one's service starts from them."""
    runs = tmp_path / "runs"
    fake_java(retrieve("pinned") + f"\necho >> {runs}")
    with ThreadPoolExecutor(8) as pool:
        fetched = list(pool.map(lambda _: jars.fetch_jars(home, "own"), range(8)))
    assert fetched == [[own_jar]] * 8
    assert runs.read_text() == "\n"


def test_another_file_than_the_pinned_one_is_refused_when_it_is_fetched(
    home: Home, own_jar: Path, fake_java: FakeJava
) -> None:
    fake_java(retrieve("tampered"))
    with pytest.raises(SetupError, match=f"{own_jar} is not the file that this version") as refused:
        jars.fetch_jars(home, "own")
    assert hashlib.sha256(b"tampered").hexdigest() in refused.value.why
    assert hashlib.sha256(b"pinned").hexdigest() in refused.value.why
    assert f"rm -r {home.cache}" in refused.value.advice


def test_a_jar_that_was_changed_later_is_refused(home: Home, own_jar: Path, fake_java: FakeJava) -> None:
    fake_java("exit 1")
    own_jar.parent.mkdir(parents=True)
    own_jar.write_text("pinned and more")
    with pytest.raises(SetupError, match="It is not used"):
        jars.fetch_jars(home, "own")


def test_a_jar_without_a_digest_is_refused(home: Home, own_jar: Path) -> None:
    own_jar.parent.mkdir(parents=True)
    own_jar.write_text("pinned")
    (jars._LISTS / "jars.sha256").write_text("")
    with pytest.raises(SetupError, match="it is missing"):
        jars.fetch_jars(home, "own")


def test_a_download_that_breaks_off_is_tried_again(
    home: Home, own_jar: Path, fake_java: FakeJava, tmp_path: Path
) -> None:
    tries = tmp_path / "tries"
    fake_java(f"""[ "$1" = -version ] || echo >> {tries}
[ "$1" = -version ] || [ $(wc -l < {tries}) = 3 ] || exit 1
{retrieve("pinned")}""")
    assert jars.fetch_jars(home, "own") == [own_jar]
    assert tries.read_text() == "\n" * 3


def test_a_failed_download_is_told_and_leaves_nothing_behind(home: Home, fake_java: FakeJava) -> None:
    fake_java("""[ "$1" = -version ] && echo 'openjdk version "17"' >&2 && exit; echo no route to host; exit 1""")
    with pytest.raises(SetupError, match="jars of spark could not be fetched") as told:
        jars.fetch_jars(home, "spark")
    assert str(home.cache / "log" / "spark.log") in str(told.value)
    assert (home.cache / "log" / "spark.log").read_text() == "no route to host\n"
    assert list((home.cache / "jars").iterdir()) == []


def test_a_platform_is_one_that_the_list_knows() -> None:
    assert jars.list_jars("postgres", jars.postgres_platform())
