"""Imports of the DAG file, each in a process of its own, with every service down.

These processes are forked from one that has imported Airflow, which takes seconds, and nothing of the package.
"""

import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

from tests.conftest import ROOT

_SERVER = f"""
import json, os, sys, traceback
import airflow.sdk
sys.path.insert(0, {str(ROOT / "dags")!r})
answers = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)
for line in sys.stdin:
    environment, program = json.loads(line)
    child = os.fork()
    if child == 0:
        os.environ.clear()
        os.environ.update(environment)
        try:
            exec(program, names := {{}})
            answer = [names["report"], ""]
        except BaseException:
            answer = [None, traceback.format_exc()]
        print(json.dumps(answer), file=answers, flush=True)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    if status:
        print(json.dumps([None, f"the process ended with status {{status}}"]), file=answers, flush=True)
"""


@cache
def _server() -> subprocess.Popen[str]:
    """The process to fork from; it ends with this one, which holds its standard input."""
    return subprocess.Popen([sys.executable, "-c", _SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def parse(folder: Path, program: str, **more: str) -> Any:
    """Run a program that imports the DAG file and sets ``report``, over the pipeline files of a folder; return that.

    ``more`` is added to its environment. Raises AssertionError with the traceback if the program fails.
    """
    server = _server()
    assert server.stdin is not None
    assert server.stdout is not None
    environment = {**os.environ, "BATCHLEDGER_PIPELINES": str(folder), **more}
    server.stdin.write(json.dumps([environment, program]) + "\n")
    server.stdin.flush()
    report, trouble = json.loads(server.stdout.readline())
    assert trouble == ""
    return report
