"""``batchledger docs``: bring the pages of Data Docs up to date. Works without Airflow."""

from batchledger.interfaces.cli.command_line import MaybeName
from batchledger.interfaces.cli.printing import Shown, new_table, number


def docs(pipeline: MaybeName = None) -> Shown:
    """Write the history and the newest 200 batches of each pipeline, and the looks of watches, as pages.

    Airflow does it each hour, and after each run of a pipeline.

    BATCHLEDGER_DOCS names the folder.
    Exit code 1 if the pages of a pipeline could not be written.
    """
    from batchledger.interfaces.data_docs.site import build_all_docs, build_named

    built, failures = ([build_named(pipeline)], {}) if pipeline else build_all_docs()
    table = new_table("Data Docs", "pipeline", "written", "current", "removed", "where")
    for each in built:
        table.add_row(each.pipeline, number(each.written), number(each.current), number(each.removed), each.page)
    errors = {name: str(error) for name, error in failures.items()}
    return Shown({"built": built, "failures": errors}, [table], exit_code=1 if failures else 0)
