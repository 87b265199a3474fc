"""What other programs need in their environment in order to reach the services of a stack."""

import os
from collections.abc import Mapping
from pathlib import Path

from batchledger.local.stack.home import Home


def environment(home: Home) -> dict[str, str]:
    """The variables that give any process Airflow's settings and connections of this stack."""
    return {
        "AIRFLOW_HOME": str(home.local / "airflow"),
        "AIRFLOW_CONFIG": str(home.local / "airflow" / "airflow.cfg"),
        "BATCHLEDGER_PIPELINES": str(home.pipelines),
        "BATCHLEDGER_DOCS": str(home.docs),
        **without_proxy(),
    }


def environment_without_services(home: Home, environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The variables for a process that finds no running stack, and perhaps an Airflow of the user's own.

    Airflow makes a folder for its logs as soon as it is imported: by default in ~/airflow. If the user has no Airflow
    there, nothing should appear there.
    """
    user_home = environ.get("HOME")
    is_named = bool({"AIRFLOW_HOME", "AIRFLOW_CONFIG"} & environ.keys())
    if is_named or user_home is None or Path(user_home, "airflow").exists():
        return {}
    return {"AIRFLOW__LOGGING__BASE_LOG_FOLDER": str(home.local / "airflow" / "logs")}


def without_proxy(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The variables that keep gRPC and HTTP clients from asking a proxy for this machine."""
    exempt = environ.get("no_proxy") or environ.get("NO_PROXY") or ""
    hosts = [*filter(None, map(str.strip, exempt.split(","))), "127.0.0.1", "localhost"]
    value = ",".join(dict.fromkeys(hosts))
    return {"no_proxy": value, "NO_PROXY": value}
