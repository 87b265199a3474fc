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
from batchledger.ledger.totals import PipelineTotals
from batchledger.lifecycle.platform import Deadlines
from batchledger.looking import build_outlook, ledger_dsn, load_named, source_options
from batchledger.model.errors import BatchledgerError, ConfigurationError
from batchledger.model.findings import PipelineState
from batchledger.model.incidents import Incident
from batchledger.monitoring.health import DEFAULT_LEDGER, PipelineHealth, judge_left, survey
from batchledger.settings.connections import find_missing_service, load_connection, postgres_dsn

SURVEYS_AT_ONCE = 8


@dataclass(frozen=True, slots=True)
class Standing:
    """One pipeline: how it stands, and what else is known of it.

    ``dsn`` is None if its file is refused, or its ledger does not answer. ``ledger`` is the connection of the ledger.
    ``totals`` are there for metrics, and None if the ledger does not answer.
    """

    health: PipelineHealth
    notes: tuple[str, ...] = ()
    dsn: str | None = field(default=None, repr=False)
    deadlines: Deadlines = field(default_factory=Deadlines)
    ledger: str = DEFAULT_LEDGER
    totals: PipelineTotals | None = None

    @property
    def name(self) -> str:
        """The pipeline, by the id of its DAG."""
        return self.health.pipeline


def survey_pipelines(now: datetime, names: Collection[str] = ()) -> list[Standing]:
    """Return how each pipeline of the folder stands, or of these ``names``; a refused file is ``unknown``.

    Without ``names``, also the pipelines whose file is gone, in the ledgers of the other files and of the usual
    connection.
    """

    def look(path: Path) -> Standing:
        try:
            pipeline = read_pipeline_file(path)
            dsn = ledger_dsn(pipeline)
            for each in pipeline.data_connections:
                load_named(pipeline, each.key, each.connection_id, *each.types)
            health = survey(build_outlook(pipeline, source_options(pipeline), dsn), now)
            return Standing(health, (), dsn, pipeline.deadlines.rules, pipeline.warehouse)
        except BatchledgerError as error:
            missing = find_missing_service(error)
            return Standing(PipelineHealth(path.stem, PipelineState.UNKNOWN, str(error), None, missing_service=missing))

    files = [each for each in find_pipeline_files() if not names or each.stem in names]
    with ThreadPoolExecutor(SURVEYS_AT_ONCE) as pool:
        found = list(pool.map(look, files))
    if names:
        return found
    ledgers = {each.ledger: each.dsn for each in found if each.dsn}
    return [*found, *find_left(ledgers, [each.name for each in found])]


def find_left(dsn_by_connection: Mapping[str, str], named: Collection[str]) -> list[Standing]:
    """Return the pipelines without a file, in these ledgers and behind the usual connection.

    A ledger that cannot be asked adds none: the pipelines with a file say what is wrong.
    """
    ledgers = dict(dsn_by_connection)
    with suppress(ConfigurationError):
        ledgers.setdefault(DEFAULT_LEDGER, postgres_dsn(load_connection(DEFAULT_LEDGER, ("postgres",))))
    left: dict[str, Standing] = {}
    for ledger, dsn in ledgers.items():
        with suppress(BatchledgerError):
            for each in list_without_file(dsn, named):
                health, advice = judge_left(each, ledger)
                left.setdefault(each.name, Standing(health, (advice,), dsn, ledger=ledger))
    return list(left.values())


def list_open_incidents(surveyed: Sequence[Standing]) -> list[Incident]:
    """Return the open incidents of these pipelines. A ledger that cannot be asked adds none."""

    def look(each: Standing) -> Sequence[Incident]:
        try:
            dsn = each.dsn or ledger_dsn(load_pipeline(each.name))
            return PostgresIncidents(dsn).list_open(each.name)
        except BatchledgerError:
            # The survey says what is wrong with the pipeline.
            return []

    with ThreadPoolExecutor(SURVEYS_AT_ONCE) as pool:
        return [each for found in pool.map(look, surveyed) for each in found]
