"""``batchledger docs``: bring the pages of Data Docs up to date. Works without Airflow."""

import typer

from batchledger.interfaces.cli.command_line import AsJson, MaybeName, load_pipeline
from batchledger.interfaces.cli.printing import Shown, new_table, number, show


def docs(pipeline: MaybeName = None, as_json: AsJson = False) -> None:
    """Write the history and the newest 200 batches of each pipeline as pages, as Airflow does after each run.

    BATCHLEDGER_DOCS names the folder.
    Exit code 1 if the pages of a pipeline could not be written.
    """
    from batchledger.interfaces.data_docs.site import build_all_docs, build_docs

    built, failures = ([build_docs(load_pipeline(pipeline))], {}) if pipeline else build_all_docs()
    table = new_table("Data Docs", "pipeline", "written", "current", "removed", "where")
    for each in built:
        table.add_row(each.pipeline, number(each.written), number(each.current), number(each.removed), each.page)
    errors = {name: str(error) for name, error in failures.items()}
    show(Shown({"built": built, "failures": errors}, [table]), as_json)
    if failures:
        raise typer.Exit(1)
