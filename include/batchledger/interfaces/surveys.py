"""How the pipelines and the watches of the folder stand. Changes nothing.

For the command line each pipeline is asked by itself. A watch stands as its newest look has said, wherever it is shown.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from batchledger.books.overview import list_without_file
from batchledger.config.pipeline_file import find_pipeline_files, load_pipeline, read_pipeline_file
from batchledger.config.watch_file import WatchConfig
from batchledger.ledger.incidents import PostgresIncidents
from batchledger.ledger.totals import PipelineTotals
from batchledger.lifecycle.platform import Deadlines
from batchledger.looking import build_outlook, ledger_dsn, load_named, source_options, watch_ledger_dsn
from batchledger.model.errors import BatchledgerError, ConfigurationError
from batchledger.model.findings import PipelineState
from batchledger.model.incidents import Incident
from batchledger.monitoring.health import DEFAULT_LEDGER, PipelineHealth, judge_left, survey
from batchledger.settings.connections import find_missing_service, load_connection, postgres_dsn
from batchledger.watching.history import LookSummary, list_unreachable, load_summaries

SURVEYS_AT_ONCE = 8


@dataclass(frozen=True, slots=True)
class Standing:
    """One pipeline or one watch: how it stands, and what else is known of it.

    ``dsn`` is None if its file is refused, or its ledger does not answer. ``ledger`` is the connection of the ledger.
    ``totals`` are there for metrics, and None if the ledger does not answer. ``look`` is the newest one of a watch.
    """

    health: PipelineHealth
    notes: tuple[str, ...] = ()
    dsn: str | None = field(default=None, repr=False)
    deadlines: Deadlines = field(default_factory=Deadlines)
    ledger: str = DEFAULT_LEDGER
    totals: PipelineTotals | None = None
    is_watch: bool = False
    look: LookSummary | None = None

    @property
    def name(self) -> str:
        """The pipeline or the watch, by the id of its DAG."""
        return self.health.pipeline

    @property
    def current_look(self) -> LookSummary | None:
        """The newest look of a watch, None if the watch cannot look any more."""
        return None if self.health.state is PipelineState.UNKNOWN else self.look


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


def survey_watches(configs: Sequence[WatchConfig], refused: Mapping[str, str]) -> list[Standing]:
    """Return how each watch stands; a refused file, or one whose ledger does not answer, is ``unknown``.

    Each ledger is asked once for all of its watches, and no table and no Kafka is asked.
    """
    unknown = (PipelineHealth(name, PipelineState.UNKNOWN, error, None) for name, error in refused.items())
    found = [Standing(each, is_watch=True) for each in unknown]
    for ledger in dict.fromkeys(each.ledger for each in configs):
        found += _survey_ledger(ledger, [each for each in configs if each.ledger == ledger])
    return found


def _survey_ledger(ledger: str, watches: Sequence[WatchConfig]) -> Iterable[Standing]:
    try:
        dsn = watch_ledger_dsn(watches[0])
        looks = load_summaries(dsn, [each.name for each in watches])
        unreachable = list_unreachable(dsn, [each.name for each in watches])
    except BatchledgerError as error:
        missing, told = find_missing_service(error), str(error)
        for each in watches:
            health = PipelineHealth(each.name, PipelineState.UNKNOWN, told, None, missing_service=missing)
            yield Standing(health, ledger=ledger, is_watch=True)
        return
    for each in watches:
        look = looks[each.name][0] if each.name in looks else None
        state = PipelineState(look.outcome) if look else PipelineState.NEVER_LOOKED
        told = look.told if look else ""
        if each.name in unreachable:
            state, since = PipelineState.UNKNOWN, unreachable[each.name]
            told = f"no look since {since:%Y-%m-%d %H:%M} UTC: the table or its topic cannot be asked. {told}"
        health = PipelineHealth(each.name, state, told, None)
        yield Standing(health, (), dsn, ledger=ledger, is_watch=True, look=look)


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
