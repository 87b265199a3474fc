"""``batchledger try``: what a pipeline makes of records of a file. Needs no service, and opens none."""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from batchledger.interfaces.cli.printing import Part, Shown, label_parts, new_table
from batchledger.model.counting import describe_count
from batchledger.model.errors import BatchledgerError, ConfigurationError

if TYPE_CHECKING:
    from batchledger.config.pipeline_file import PipelineConfig
    from batchledger.trying.expectation import Expectation
    from batchledger.trying.trial import Trial

ROWS_SHOWN = 20
_WIDEST = 10_000
_SAMPLE = '{"value": {"id": 1}}'


def try_(
    pipelines: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="PIPELINE",
            help="Names of pipelines, or their files; otherwise all of the folder that have a file of expectations.",
        ),
    ] = None,
    *,
    records: Annotated[
        Path | None, typer.Option(metavar="FILE", help='Records, one a line: {"value": …, "key": …, "headers": …}.')
    ] = None,
    expect: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="What is expected; without --records, PIPELINE.expect.yaml beside the file."),
    ] = None,
    schema_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The schema of all values, if a registry has it.")
    ] = None,
) -> Shown | Iterable[Shown]:
    """Show what a pipeline makes of records of a file, without any service, and compare it with what is expected.

    Records go through decoder, transform and checks as in a run. A transform starts Spark in this process.
    Checks that need PostgreSQL are not judged, and say so.
    Exit code 1 if something else came than is expected, 2 if a file is refused.
    """
    if (records or expect or schema_file) and len(pipelines or ()) != 1:
        raise typer.BadParameter("--records, --expect and --schema-file are for one PIPELINE")
    found = list(dict.fromkeys(pipelines or _list_expected()))
    if len(found) == 1:
        return _try(found[0], records, expect, schema_file)
    return map(_try_one_of_several, found)


def _list_expected() -> list[str]:
    from batchledger.config.pipeline_file import EXPECTED, find_pipeline_files
    from batchledger.config.places import pipelines_folder

    found = [str(each) for each in find_pipeline_files() if each.with_name(each.stem + EXPECTED).exists()]
    if found:
        return found
    raise ConfigurationError(
        f"No pipeline file in {pipelines_folder()} has a file of expectations beside it.",
        advice=f"Write one, such as orders{EXPECTED}, or try records: batchledger try PIPELINE --records FILE",
    )


def _try_one_of_several(name: str) -> Shown:
    """Try a pipeline whose error is no reason to leave the others untried."""
    try:
        return _try(name)
    except BatchledgerError as error:
        document = {"pipeline": name, "error": error.message, "why": error.why, "advice": error.advice}
        return Shown(document, label_parts(error), error.exit_code)


def _try(name: str, records: Path | None = None, expect: Path | None = None, schema_file: Path | None = None) -> Shown:
    # Imported here because the list of commands does without them.
    from batchledger.trying.records import read_records
    from batchledger.trying.trial import try_records

    pipeline = _read_pipeline(name)
    expected = _find_expected(pipeline, records, expect)
    if expected is not None:
        records, schema_file = records or expected.records, schema_file or expected.schema_file
    if records is None:
        raise ConfigurationError(
            f"There are no records to try {pipeline.name} with.",
            advice=f"Write a line for each record, such as {_SAMPLE}, and name the file: "
            f"batchledger try {pipeline.name} --records FILE",
            pipeline=pipeline.name,
        )
    try:
        trial = try_records(pipeline, read_records(records, pipeline.source.topics), schema_file)
    except BatchledgerError as error:
        # What a transform says may quote records. These are the person's own.
        error.why += f"\n{error.quoted}" if error.quoted else ""
        raise
    return _show(pipeline.name, trial, expected)


def _read_pipeline(name: str) -> "PipelineConfig":
    from batchledger.config.pipeline_file import load_pipeline, read_pipeline_file

    return read_pipeline_file(Path(name)) if name.endswith(".yaml") else load_pipeline(name)


def _find_expected(pipeline: "PipelineConfig", records: Path | None, expect: Path | None) -> "Expectation | None":
    from batchledger.config.pipeline_file import EXPECTED
    from batchledger.trying.expectation import read_expectation

    usual = pipeline.file.with_name(pipeline.name + EXPECTED)
    if expect is None and (records is not None or not usual.exists()):
        return None
    return read_expectation(expect or usual)


def _show(name: str, trial: "Trial", expected: "Expectation | None") -> Shown:
    from batchledger.trying.trial import NOT_JUDGED

    document = {"pipeline": name, **asdict(trial), "blocked": trial.is_blocked, "differences": None}
    parts = [*_show_rows(name, trial), *_show_others(trial)]
    counts = Text(_count(name, trial), no_wrap=True)
    unjudged = [each.name for each in trial.checks if each.outcome == NOT_JUDGED]
    notes = [Text(each) for each in trial.notes]
    notes += [Text(f"Not judged here: {', '.join(unjudged)}. A run judges them.")] if unjudged else []
    if expected is None:
        return Shown(document, [*parts, *notes, counts])
    differences = expected.compare(trial)
    document["differences"] = [{"file": expected.file, **asdict(each)} for each in differences]
    if not differences:
        return Shown(document, [*notes, Text(f"{counts.plain} As {expected.file} expects.", no_wrap=True)])
    lines = [Text(f"{expected.file}:{each.line}:{each.column}: {each.text}", no_wrap=True) for each in differences]
    return Shown(document, [*lines, *notes, counts], BatchledgerError.exit_code)


def _count(name: str, trial: "Trial") -> str:
    counts = {
        "quarantined": trial.quarantined,
        "duplicates": trial.duplicates,
        "tombstones": trial.tombstones,
        "filtered": trial.filtered,
    }
    rows, others = (
        describe_count(len(trial.rows), "row"),
        [f"{len(each)} {what}" for what, each in counts.items() if each],
    )
    blocked = " A run would publish none of them: a check blocks the batch." if trial.is_blocked else ""
    return f"{name}: {describe_count(trial.records, 'record')}: {', '.join([rows, *others])}.{blocked}"


def _show_rows(name: str, trial: "Trial") -> Iterator[Part]:
    """Yield a table; if the terminal is too narrow for it, the rows as a file of expectations may have them."""
    if not trial.rows:
        return
    shown = trial.rows[:ROWS_SHOWN]
    table = _make_table(f"Rows of {name}", list(trial.rows[0]), [list(each.values()) for each in shown])
    console = Console()
    if Measurement.get(console, console.options.update(max_width=_WIDEST), table).maximum <= console.width:
        yield table
    else:
        yield Text("rows:", style="bold")
        yield from (Text(f"- {json.dumps(each, ensure_ascii=False)}", no_wrap=True) for each in shown)
    if len(trial.rows) > ROWS_SHOWN:
        yield Text(f"and {describe_count(len(trial.rows) - ROWS_SHOWN, 'row')} more, with --json")


def _show_others(trial: "Trial") -> Iterator[Part]:
    if trial.quarantined:
        yield _make_table("Quarantine", ["line", "why"], [[each.line, each.reason] for each in trial.quarantined])
    if trial.duplicates:
        yield _make_table(
            "Duplicates", ["line", "repeats line"], [[each.line, each.first] for each in trial.duplicates]
        )
    told = [[each.name, each.outcome, ", ".join(map(str, each.lines)), each.detail] for each in trial.checks]
    if told:
        yield _make_table("Checks", ["check", "outcome", "lines", "what was found"], told)


def _make_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> Table:
    table = new_table(title, *columns)
    for each in rows:
        table.add_row(*map(_write, each))
    return table


def _write(value: Any) -> Text:
    """Return a value as one line: a text as it is, anything else as JSON."""
    if value is None:
        return Text("null", style="dim")
    if isinstance(value, str) and value.isprintable():
        return Text(value)
    return Text(json.dumps(value))
