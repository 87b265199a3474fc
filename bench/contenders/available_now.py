"""The peer of the manual: Structured Streaming by spark-submit; see ``programs.available_now``."""

import os
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from batchledger.stack.jars import fetch_jars, pyspark_folder
from batchledger.stack.machine import HOST
from batchledger.stack.spark_connect import CONSUMER_CACHES, JAVA_OPTIONS
from bench.contenders.contender import Contender, Running, Subject
from bench.contenders.one_program import OneProgram
from bench.orders import CHECKPOINTS_VARIABLE, ORDER_VARIABLE, Order
from bench.process import kill_group, run_program, spawn
from bench.programs import __file__ as programs
from bench.records import SCHEMA
from bench.services import Services

COLD_SECONDS = 300


@contextmanager
def start(services: Services) -> Iterator[Running]:
    """Start the JVM and its session."""
    argv, environment = _prepare(services)
    with run_program(services, argv, "available_now", **environment) as program:
        yield OneProgram("available_now", program)


@contextmanager
def cold_run(services: Services, order: Order) -> Iterator[Callable[[], None]]:
    """Start a spark-submit that takes what the topic holds; at the end of the block wait until it is over.

    Lends what raises RuntimeError once it has failed; so does the end of the block.
    """
    argv, environment = _prepare(services)
    log_file = services.home.log_file("available_now_cold")
    with log_file.open("ab") as log:
        process = spawn(services, argv, log, **environment, **{ORDER_VARIABLE: order.to_json()})

        def require_alive() -> None:
            if process.poll():
                raise RuntimeError(f"spark-submit ended with exit code {process.returncode}; see {log_file}")

        try:
            yield require_alive
            process.wait(COLD_SECONDS)
            require_alive()
        finally:
            kill_group(process)


def describe() -> Contender:
    """AvailableNow."""
    title = "Spark AvailableNow, foreachBatch JDBC"
    return Contender(Subject("available_now", title, {"schema": SCHEMA}), start)


def _prepare(services: Services) -> tuple[Sequence[str], Mapping[str, str]]:
    """Write Spark's settings, those of the stack's own server; return the command and its environment."""
    folder = services.home.local / "available_now"
    folder.mkdir(exist_ok=True)
    driver = [jar for jar in fetch_jars(services.home, "connect") if jar.name.startswith("postgresql-")]
    settings = {
        "spark.master": f"local[{2 * (os.cpu_count() or 1)}]",
        "spark.driver.memory": "1g",
        "spark.driver.bindAddress": HOST,
        "spark.driver.host": HOST,
        "spark.driver.extraClassPath": os.pathsep.join(map(str, [*fetch_jars(services.home, "spark"), *driver])),
        "spark.driver.extraJavaOptions": JAVA_OPTIONS,
        "spark.ui.enabled": "false",
        "spark.local.dir": folder / "tmp",
        "spark.sql.warehouse.dir": folder / "warehouse",
        "spark.sql.session.timeZone": "UTC",
        **CONSUMER_CACHES,
    }
    (folder / "spark-defaults.conf").write_text("".join(f"{key} {value}\n" for key, value in settings.items()))
    shutil.copy(services.home.local / "spark" / "log4j2.properties", folder)
    home = pyspark_folder()
    environment = {
        "SPARK_HOME": str(home),
        "SPARK_CONF_DIR": str(folder),
        "SPARK_LOCAL_IP": HOST,
        "PYSPARK_PYTHON": sys.executable,
        CHECKPOINTS_VARIABLE: str(folder / "checkpoints"),
    }
    program = Path(programs).with_name("available_now.py")
    return (str(home / "bin" / "spark-submit"), str(program)), environment
