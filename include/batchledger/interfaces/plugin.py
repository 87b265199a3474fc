"""The plugin that Airflow finds by the entry point ``airflow.plugins`` of the installed package."""

from typing import ClassVar
from urllib.parse import urlsplit

from airflow.plugins_manager import AirflowPlugin
from airflow.sdk.configuration import conf

from batchledger.interfaces import page
from batchledger.interfaces.airflow import listener as airflow_listener

# Behind a proxy Airflow may begin below a prefix. An address has no host: the login of a browser holds for one host.
PREFIX = urlsplit(conf.get("api", "base_url", fallback="")).path.rstrip("/")


class BatchledgerPlugin(AirflowPlugin):
    """The scheduler's preloading listener, the pages under ``/batchledger``, and what leads there."""

    name = "batchledger"
    listeners: ClassVar = [airflow_listener]
    fastapi_apps: ClassVar = [{"app": page.serve, "url_prefix": "/batchledger", "name": "Batchledger"}]
    external_views: ClassVar = [
        {
            "name": "Batchledger",
            "href": f"{PREFIX}/batchledger/pipelines",
            "destination": "nav",
            "category": "browse",
            "url_route": "batchledger",
        },
        {
            "name": "Offsets",
            "href": PREFIX + "/batchledger/pipelines/{DAG_ID}",
            "destination": "dag",
            "url_route": "batchledger-pipeline",
        },
        {
            "name": "Batch",
            "href": PREFIX + "/batchledger/pipelines/{DAG_ID}/runs/{RUN_ID}",
            "destination": "dag_run",
            "url_route": "batchledger-batch",
        },
        {
            "name": "Data Docs",
            "href": f"{PREFIX}/batchledger/docs/index.html",
            "destination": "nav",
            "category": "browse",
            "url_route": "batchledger-docs",
        },
        {
            "name": "Data Docs",
            "href": PREFIX + "/batchledger/docs/{DAG_ID}/runs/{RUN_ID}",
            "destination": "dag_run",
            "url_route": "batchledger-docs-of-run",
        },
    ]
