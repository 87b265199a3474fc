"""Registers Batchledger with Airflow; the code is in the installed package."""

from typing import ClassVar

from airflow.plugins_manager import AirflowPlugin

from batchledger import airflow_listener, ui


class BatchledgerPlugin(AirflowPlugin):
    """The scheduler's preloading listener, Data Docs under ``/batchledger``, and what leads there."""

    name = "batchledger"
    listeners: ClassVar = [airflow_listener]
    fastapi_apps: ClassVar = [{"app": ui.serve, "url_prefix": "/batchledger", "name": "Batchledger"}]
    external_views: ClassVar = [
        {
            "name": "Data Docs",
            "href": "/batchledger/docs/index.html",
            "destination": "nav",
            "category": "browse",
            "url_route": "batchledger-docs",
        },
        {
            "name": "Data Docs",
            "href": "/batchledger/docs/{DAG_ID}/runs/{RUN_ID}",
            "destination": "dag_run",
            "url_route": "batchledger-docs-of-run",
        },
    ]
