"""The button that leads from the audit of a run to the Data Docs page of its batch."""

from typing import TYPE_CHECKING, Any

import attrs
from airflow.sdk import BaseOperatorLink
from airflow.sdk.configuration import conf
from typing_extensions import override

from batchledger.monitoring.messages import Links

if TYPE_CHECKING:
    from airflow.sdk import BaseOperator


@attrs.define()
class DataDocsLink(BaseOperatorLink):
    """Data Docs of the batch; kept with the task when it has ended, whether it succeeded or not."""

    name: str = "Data Docs"

    @override
    def get_link(self, operator: "BaseOperator", *, ti_key: Any) -> str:
        """Return the address of the page; empty if no batch was planned. Runs in the task's process."""
        batch_id = ti_key.xcom_pull(task_ids="plan")
        url = conf.get("api", "base_url", fallback=None) or ""
        return Links(url).to_docs(operator.dag_id, None if batch_id is None else int(batch_id)) or ""
