"""How the pipelines of the folder stand, for the command line: each is asked by itself. Changes nothing."""

from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from batchledger.books.overview import list_without_file
from batchledger.config.pipeline_file import find_pipeline_files, load_pipeline, read_pipeline_file
from batchledger.ledger.incidents import PostgresIncidents
from batchledger.lifecycle.platform import Deadlines
from batchledger.looking import build_outlook, ledger_dsn
from batchledger.model.errors import BatchledgerError, ConfigurationError
from batchledger.model.findings import PipelineState
from batchledger.model.incidents import Incident
from batchledger.monitoring.health import DEFAULT_LEDGER, PipelineHealth, judge_left, survey
from batchledger.settings.connections import find_missing_service, load_connection, postgres_dsn

SURVEYS_AT_ONCE = 8


@dataclass(frozen=True, slots=True)
class Surveyed:
    """How a pipeline stands, its deadlines, and its ledger: connection and database, None if its file is refused.

    ``advice`` is there if its file is gone.
    """

    health: PipelineHealth
    deadlines: Deadlines = field(default_factory=Deadlines)
    dsn: str | None = field(default=None, repr=False)
    ledger: str = DEFAULT_LEDGER
    advice: str = ""


def survey_pipelines(now: datetime, names: Collection[str] = ()) -> list[Surveyed]:
    """Return how each pipeline of the folder stands, or of these ``names``; a refused file is ``unknown``.

    Without ``names``, also the pipelines whose file is gone, in the ledgers of the other files and of the usual
    connection.
    """

    def look(path: Path) -> Surveyed:
        try:
            pipeline = read_pipeline_file(path)
            health = survey(build_outlook(pipeline), now)
            return Surveyed(health, pipeline.deadlines.rules, ledger_dsn(pipeline), pipeline.warehouse)
        except BatchledgerError as error:
            missing = find_missing_service(error)
            return Surveyed(PipelineHealth(path.stem, PipelineState.UNKNOWN, str(error), None, missing_service=missing))

    files = [each for each in find_pipeline_files() if not names or each.stem in names]
    with ThreadPoolExecutor(SURVEYS_AT_ONCE) as pool:
        found = list(pool.map(look, files))
    if names:
        return found
    ledgers = {each.ledger: each.dsn for each in found if each.dsn}
    return [*found, *find_left(ledgers, [each.health.pipeline for each in found])]


def find_left(dsn_by_connection: Mapping[str, str], named: Collection[str]) -> list[Surveyed]:
    """Return the pipelines without a file, in these ledgers and behind the usual connection.

    A ledger that cannot be asked adds none: the pipelines with a file say what is wrong.
    """
    ledgers = dict(dsn_by_connection)
    with suppress(ConfigurationError):
        ledgers.setdefault(DEFAULT_LEDGER, postgres_dsn(load_connection(DEFAULT_LEDGER, ("postgres",))))
    left: dict[str, Surveyed] = {}
    for ledger, dsn in ledgers.items():
        with suppress(BatchledgerError):
            for each in list_without_file(dsn, named):
                health, advice = judge_left(each, ledger)
                left.setdefault(each.name, Surveyed(health, dsn=dsn, ledger=ledger, advice=advice))
    return list(left.values())


def list_open_incidents(surveyed: Sequence[Surveyed]) -> list[Incident]:
    """Return the open incidents of these pipelines. A ledger that cannot be asked adds none."""

    def look(each: Surveyed) -> Sequence[Incident]:
        name = each.health.pipeline
        try:
            dsn = each.dsn or ledger_dsn(load_pipeline(name))
            return PostgresIncidents(dsn).list_open(name)
        except BatchledgerError:
            # The survey says what is wrong with the pipeline.
            return []

    with ThreadPoolExecutor(SURVEYS_AT_ONCE) as pool:
        return [each for found in pool.map(look, surveyed) for each in found]
