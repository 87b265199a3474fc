"""How the pipelines of the folder stand, for the command line: each is asked by itself. Changes nothing."""

from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from batchledger.adapters.postgres.ledger.incidents import PostgresIncidents
from batchledger.config.connections import find_missing_service
from batchledger.config.pipeline_file import find_pipeline_files, read_pipeline_file
from batchledger.lifecycle.platform import Deadlines
from batchledger.model.errors import BatchledgerError
from batchledger.model.findings import PipelineState
from batchledger.model.incidents import Incident
from batchledger.monitoring.health import PipelineHealth, survey
from batchledger.wiring import build_platform, ledger_dsn

SURVEYS_AT_ONCE = 8


@dataclass(frozen=True, slots=True)
class Surveyed:
    """How a pipeline stands, its deadlines, and the database of its ledger; None if its file is refused."""

    health: PipelineHealth
    deadlines: Deadlines = field(default_factory=Deadlines)
    dsn: str | None = field(default=None, repr=False)


def survey_pipelines(now: datetime, names: Collection[str] = ()) -> list[Surveyed]:
    """Return how each pipeline of the folder stands, or of these ``names``; a refused file is ``unknown``."""

    def look(path: Path) -> Surveyed:
        try:
            pipeline = read_pipeline_file(path)
            health = survey(build_platform(pipeline), now)
            return Surveyed(health, pipeline.deadlines.rules, ledger_dsn(pipeline))
        except BatchledgerError as error:
            missing = find_missing_service(error)
            return Surveyed(PipelineHealth(path.stem, PipelineState.UNKNOWN, str(error), None, missing_service=missing))

    with ThreadPoolExecutor(SURVEYS_AT_ONCE) as pool:
        return list(pool.map(look, (each for each in find_pipeline_files() if not names or each.stem in names)))


def list_open_incidents() -> list[Incident]:
    """Return the open incidents of every pipeline of the folder. A ledger that cannot be asked adds none."""

    def look(path: Path) -> Sequence[Incident]:
        try:
            pipeline = read_pipeline_file(path)
            return PostgresIncidents(ledger_dsn(pipeline)).list_open(pipeline.name)
        except BatchledgerError:
            # The survey says what is wrong with the pipeline.
            return []

    with ThreadPoolExecutor(SURVEYS_AT_ONCE) as pool:
        return [each for found in pool.map(look, find_pipeline_files()) for each in found]
