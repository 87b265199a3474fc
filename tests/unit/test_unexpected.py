"""No error ends as a stack trace on a terminal: an unforeseen error is one sentence, and a private file."""

import os
import re
import runpy
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import typer

from batchledger import cli
from batchledger.interfaces.unexpected import explain_unexpected
from batchledger.jobs import stage_batch
from batchledger.model.errors import BatchBlockedError
from tests.conftest import ROOT
from tests.forked import run_command

SECRET = "a record's own value"  # noqa: S105 -- what no terminal shows


def run_with(error: BaseException, monkeypatch: pytest.MonkeyPatch, local: Path) -> int:
    """Run the command line with a command that ends so."""
    app = typer.Typer(pretty_exceptions_enable=False)

    @app.command()
    def fail() -> None:
        raise error

    monkeypatch.setattr(cli, "app", app)
    monkeypatch.setattr(sys, "argv", ["batchledger"])
    monkeypatch.setenv("BATCHLEDGER_LOCAL", str(local))
    with pytest.raises(SystemExit) as ended:
        cli.main()
    return int(str(ended.value.code))


@pytest.mark.parametrize(
    "error",
    [KeyError(SECRET), RuntimeError(SECRET), RecursionError(SECRET), UnicodeEncodeError("utf-8", SECRET, 0, 1, SECRET)],
    ids=lambda each: type(each).__name__,
)
def test_error_that_nobody_foresaw_is_one_sentence_and_a_private_file(
    error: Exception, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run_with(error, monkeypatch, tmp_path) == 1
    (file,) = (tmp_path / "log").iterdir()
    told = capfd.readouterr()
    assert told.out == ""
    assert told.err.count("\n") == 1
    assert told.err.startswith(f"batchledger ended by an error that was not foreseen: {type(error).__name__}")
    assert f"The trace is in {file}" in told.err
    assert SECRET not in told.err
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    text = file.read_text()
    assert "Traceback (most recent call last)" in text
    assert SECRET in text


@pytest.mark.parametrize(
    ("error", "code"),
    [(KeyboardInterrupt(), 130), (BrokenPipeError(32, "Broken pipe"), 1), (BatchBlockedError("wait", batch_id=1), 3)],
    ids=lambda each: repr(each)[:20],
)
def test_what_is_no_surprise_leaves_no_file(
    error: BaseException,
    code: int,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    assert run_with(error, monkeypatch, tmp_path) == code
    assert not (tmp_path / "log").exists()
    assert capfd.readouterr().err == ("error: wait\n" if code == 3 else "")


@pytest.mark.parametrize("command", ["status", "up"])
def test_no_command_ends_as_a_trace(command: str, tmp_path: Path) -> None:
    """In the folder of the services lies a file that says nothing of them.

    Each command meets it before the command line looks for its module, so two stand for all.
    """
    (tmp_path / "stack.json").write_text("{")
    environment = {**os.environ, "BATCHLEDGER_LOCAL": str(tmp_path)}
    done = run_command((command,), environment)
    (file,) = (tmp_path / "log").iterdir()
    assert (done.returncode, done.stdout) == (1, "")
    assert re.fullmatch(
        rf"batchledger {command}.* ended by an error that was not foreseen: JSONDecodeError, in "
        rf"batchledger/local/stack/home.py, line \d+. The trace is in {file}; add it to a report.\n",
        done.stderr,
    )


def test_trace_goes_to_a_temporary_file_where_there_is_no_local_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    told = explain_unexpected(KeyError("x"), "it", tmp_path / "none")
    (file,) = tmp_path.iterdir()
    assert str(file) in told
    monkeypatch.setattr("tempfile.tempdir", str(file / "none"))
    assert "could not be written" in explain_unexpected(KeyError("x"), "it", tmp_path / "none")


def test_what_the_system_says_of_a_file_is_told() -> None:
    error = PermissionError(13, "Permission denied", "/etc/shadow")
    assert "PermissionError: Permission denied: /etc/shadow" in explain_unexpected(error, "it", Path("/none"))


def test_reader_who_stops_reading_is_no_error(tmp_path: Path) -> None:
    """As ``batchledger --help | head -1`` does, with more to come than a pipe holds."""
    program = "import sys; from batchledger import cli; cli.app = lambda: sys.stdout.write('x' * 200_000); cli.main()"
    environment = {**os.environ, "BATCHLEDGER_LOCAL": str(tmp_path)}
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
    assert not (tmp_path / "log").exists()


def load_job() -> Callable[[], int]:
    """The file of the checkout leads into the package."""
    main: Callable[[], int] = runpy.run_path(str(ROOT / "spark_jobs" / "stage_batch.py"))["main"]
    assert main is stage_batch.main
    return main


def test_stage_job_ends_with_one_sentence_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    main = load_job()
    monkeypatch.setenv("BATCHLEDGER_LOCAL", str(tmp_path))
    monkeypatch.setattr(stage_batch, "load_pipeline", {}.__getitem__)
    monkeypatch.setattr(sys, "argv", ["stage_batch.py", "--pipeline", "orders", "--batch", "1", "--run", "r"])
    assert main() == 1
    (file,) = (tmp_path / "log").iterdir()
    told = capfd.readouterr().err
    assert told.startswith(
        "the stage job of batch 1 of orders ended by an error that was not foreseen: KeyError, in batchledger/jobs/"
    )
    assert str(file) in told
    assert "Traceback" not in told
