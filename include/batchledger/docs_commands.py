"""``batchledger docs``: bring the pages of batches and pipelines up to date. Works without Airflow."""

import logging
from typing import Annotated

import typer

from batchledger.command_line import AsJson
from batchledger.config import find_pipeline_files, load_pipeline
from batchledger.errors import BatchledgerError
from batchledger.printing import new_table, number, print_json, print_out

logger = logging.getLogger(__name__)

MaybeName = Annotated[
    str | None, typer.Argument(metavar="[PIPELINE]", help="One pipeline; without it all in the folder.")
]


def docs(pipeline: MaybeName = None, as_json: AsJson = False) -> None:
    """Write the pages of the newest 200 batches and the history of each pipeline, as each run in Airflow does.

    Into the folder that BATCHLEDGER_DOCS names. Exit code 1 when those of a pipeline could not be written.
    """
    from batchledger.docs.site import Built, build_docs

    built: list[Built] = []
    failures: dict[str, str] = {}
    for name in [pipeline] if pipeline else [path.stem for path in find_pipeline_files()]:
        try:
            built.append(build_docs(load_pipeline(name)))
        except BatchledgerError as error:
            if pipeline:
                raise
            logger.warning("%s: %s", name, error)
            failures[name] = str(error)
    if as_json:
        print_json({"built": built, "failures": failures})
    else:
        table = new_table("Data Docs", "pipeline", "written", "current", "removed", "where")
        for each in built:
            table.add_row(each.pipeline, number(each.written), number(each.current), number(each.removed), each.page)
        print_out(table)
    if failures:
        raise typer.Exit(1)
