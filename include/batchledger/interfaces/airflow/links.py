"""The button that leads from the audit of a run to the Data Docs page of its batch."""

from typing import TYPE_CHECKING, Any

import attrs
from airflow.sdk import BaseOperatorLink
from airflow.sdk.configuration import conf
from typing_extensions import override

if TYPE_CHECKING:
    from airflow.sdk import BaseOperator


@attrs.define()
class DataDocsLink(BaseOperatorLink):
    """Data Docs of the batch; kept with the task when it has ended, whether it succeeded or not.

    Without a pipeline the task has its name as argument.
    """

    pipeline: str | None = None
    name: str = "Data Docs"

    @override
    def get_link(self, operator: "BaseOperator", *, ti_key: Any) -> str:
        """Return the address of the page; empty if no batch was planned. Runs in the task's process."""
        from batchledger.monitoring.messages import Links

        batch_id = ti_key.xcom_pull(
            task_ids=f"{operator.task_id.removesuffix('audit')}plan", map_indexes=ti_key.map_index
        )
        url = conf.get("api", "base_url", fallback=None) or ""
        pipeline = self.pipeline or str(getattr(operator, "op_args", [""])[0])
        return Links(url).to_docs(pipeline, None if batch_id is None else int(batch_id)) or ""
