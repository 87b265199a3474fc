"""``batchledger docs``: bring the pages of batches and pipelines up to date. Works without Airflow."""

from typing import Annotated

import typer

from batchledger.interfaces.cli.command_line import AsJson, load_pipeline
from batchledger.interfaces.cli.printing import new_table, number, print_json, print_out

MaybeName = Annotated[
    str | None, typer.Argument(metavar="[PIPELINE]", help="One pipeline; without it all in the folder.")
]


def docs(pipeline: MaybeName = None, as_json: AsJson = False) -> None:
    """Write the pages of the newest 200 batches and the history of each pipeline, as Airflow does after each run.

    Into the folder that BATCHLEDGER_DOCS names. Exit code 1 when those of a pipeline could not be written.
    """
    from batchledger.interfaces.data_docs.site import build_all_docs, build_docs

    built, failures = ([build_docs(load_pipeline(pipeline))], {}) if pipeline else build_all_docs()
    if as_json:
        print_json({"built": built, "failures": {name: str(error) for name, error in failures.items()}})
    else:
        table = new_table("Data Docs", "pipeline", "written", "current", "removed", "where")
        for each in built:
            table.add_row(each.pipeline, number(each.written), number(each.current), number(each.removed), each.page)
        print_out(table)
    if failures:
        raise typer.Exit(1)
