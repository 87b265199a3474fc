"""What other programs need in their environment in order to reach the services of a stack."""

import os
from collections.abc import Mapping

from batchledger.stack.home import Home


def environment(home: Home) -> dict[str, str]:
    """The variables that make Airflow's settings and connections, in any process, those of this stack."""
    return {
        "AIRFLOW_HOME": str(home.local / "airflow"),
        "AIRFLOW_CONFIG": str(home.local / "airflow" / "airflow.cfg"),
        "BATCHLEDGER_PIPELINES": str(home.pipelines),
        "BATCHLEDGER_DOCS": str(home.local / "docs"),
        **without_proxy(),
    }


def without_proxy(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The variables that keep gRPC and HTTP clients from asking a proxy for this machine."""
    exempt = environ.get("no_proxy") or environ.get("NO_PROXY") or ""
    hosts = [*filter(None, map(str.strip, exempt.split(","))), "127.0.0.1", "localhost"]
    value = ",".join(dict.fromkeys(hosts))
    return {"no_proxy": value, "NO_PROXY": value}
