"""Real processes that start in no time: forked from a server that has the heavy imports behind it.

Such a process shares nothing with the one of the tests: it has its own connections, signals, output and exit code.
"""

import multiprocessing
import os
import subprocess
import sys
from collections.abc import Mapping
from multiprocessing.context import ForkServerContext, ForkServerProcess
from pathlib import Path
from tempfile import TemporaryDirectory

COMMAND_SECONDS = 120


def fork_server() -> ForkServerContext:
    """The context whose processes are forked from that server; it starts with the first one and ends with the tests."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.heavy_imports"])
    return context


def run_command(arguments: tuple[str, ...], environment: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """Run the ``main`` of batchledger with its own standard output and error, as a shell does."""
    with TemporaryDirectory() as folder:
        out, err = Path(folder, "out"), Path(folder, "err")
        process = start_command(arguments, environment, out, err)
        process.join(COMMAND_SECONDS)
        assert process.exitcode is not None, f"{arguments} did not end: {err.read_text()}"
        return subprocess.CompletedProcess(arguments, process.exitcode, out.read_text(), err.read_text())


def start_command(
    arguments: tuple[str, ...], environment: Mapping[str, str], out: Path, err: Path
) -> ForkServerProcess:
    """Start the ``main`` of batchledger with these files, or terminals, as its standard output and error."""
    process = fork_server().Process(target=_run_main, args=(arguments, dict(environment), out, err), daemon=True)
    process.start()
    return process


def _run_main(arguments: tuple[str, ...], environment: dict[str, str], out: Path, err: Path) -> None:
    for number, file in ((1, out), (2, err)):
        os.dup2(os.open(file, os.O_WRONLY | os.O_CREAT), number)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = ["batchledger", *arguments]
    # Imported here, because its consoles look at once at what they will write to.
    from batchledger.cli import main

    main()
