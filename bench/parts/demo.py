"""How long ``make demo`` takes if all is installed: ``up``, which finds the services running, and ``demo``.

Each run has a stack of its own with empty data, so it writes and publishes all records. The start of that stack is
measured, too.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict
from time import perf_counter

from batchledger.local.stack import local_stack
from batchledger.local.stack.home import Home, port_variable
from batchledger.local.stack.machine import choose_free_ports
from bench.bench import Say
from bench.figures import Figure, describe
from bench.services import ROOT

PART = "demo"
DEADLINE_SECONDS = 600


def measure(rounds: int, say: Say) -> Iterator[Figure]:
    """Yield the seconds of the demo and of the start. No other stack of the bench may run meanwhile."""
    for number in range(rounds):
        local = ROOT / ".local" / "bench-demo"
        home = Home(ROOT, local, ROOT / ".local" / "cache", ROOT / "include" / "pipelines")
        local_stack.down(home)
        shutil.rmtree(local, ignore_errors=True)
        ports = {port_variable(name): str(port) for name, port in asdict(choose_free_ports()).items()}
        python_path = os.pathsep.join([str(ROOT / "include"), os.environ.get("PYTHONPATH", "")])
        inherited = {key: value for key, value in os.environ.items() if not key.startswith(("AIRFLOW", "BATCHLEDGER"))}
        environment = {**inherited, **ports, "BATCHLEDGER_LOCAL": str(local), "PYTHONPATH": python_path}
        try:
            moments = [perf_counter()]
            for command in ("up", "up", "demo"):
                _run(command, environment)
                moments.append(perf_counter())
        finally:
            local_stack.down(home)
            shutil.rmtree(local, ignore_errors=True)
        start, demo = moments[1] - moments[0], moments[3] - moments[1]
        say(f"demo, round {number + 1} of {rounds}: {start:.1f} s to start the services, {demo:.1f} s for make demo")
        yield from describe(PART, "demo", seconds=demo, start_seconds=start)


def _run(command: str, environment: dict[str, str]) -> None:
    argv = (sys.executable, "-c", "from batchledger.cli import main; main()", command)
    done = subprocess.run(
        argv, env=environment, cwd=ROOT, check=False, capture_output=True, text=True, timeout=DEADLINE_SECONDS
    )
    if done.returncode != 0:
        raise RuntimeError(f"batchledger {command} ended with exit code {done.returncode}: {done.stderr[-2000:]}")
