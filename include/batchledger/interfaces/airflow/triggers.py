"""How runs of a pipeline's DAG are started: its schedule, and the form behind its Trigger button and its backfills.

The form is Airflow's own, made from params. JSON schema refuses there what it can express; ``trigger_form`` refuses the
rest in the first task.
"""

from typing import Any

from airflow.sdk import Asset, AssetOrTimeSchedule, AssetWatcher, CronDataIntervalTimetable, Param

from batchledger.config.pipeline_file import PipelineConfig
from batchledger.config.schedules import SCHEDULES_WITHOUT_INTERVAL
from batchledger.interfaces.airflow.records_trigger import RecordsTrigger
from batchledger.interfaces.trigger_form import Action, Field

# Airflow checks the format date-time only if an optional package is installed; the pattern is checked everywhere.
MOMENT = r"^\d{4}-\d\d-\d\dT\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:\d\d)$"
# Also the empty line that is left when one presses Enter behind the last range.
RANGE_OR_NOTHING = r"^\s*([A-Za-z0-9._-]+\[\d+\] \d+\.\.\d+)?\s*$"


def choose_schedule(
    pipeline: PipelineConfig,
) -> AssetOrTimeSchedule | CronDataIntervalTimetable | list[Asset] | str | None:
    """Let each scheduled run stand for the interval that has just ended, so that a backfill knows what to take again.

    A bare cron expression would give intervals of length zero. All schedules are in UTC. A pipeline that starts on
    records waits for an asset of its own, whose events say in Airflow why a run began.
    """
    timetable, start = choose_timetable(pipeline.schedule), pipeline.start_on_records
    if start is None or isinstance(timetable, str):
        return timetable
    trigger = RecordsTrigger(pipeline.name, pipeline.source.connection, start.check_every)
    waiting = Asset(name=f"{pipeline.name}_records", watchers=[AssetWatcher(name="records", trigger=trigger)])
    return [waiting] if timetable is None else AssetOrTimeSchedule(timetable=timetable, assets=[waiting])


def choose_timetable(schedule: str | None) -> CronDataIntervalTimetable | str | None:
    """Return the schedule of a file as Airflow takes it, with intervals where it has some."""
    if schedule is None or schedule in SCHEDULES_WITHOUT_INTERVAL:
        return schedule
    return CronDataIntervalTimetable(schedule, timezone="UTC")


def make_form() -> dict[str, Param]:
    """Return the fields in the order in which they are shown; a run that gives none of them catches up.

    Those without a section stand open at the top, each section is folded. Each DAG needs params of its own, because
    Airflow keeps values in them.
    """
    one_batch, replay = Action.ONE_BATCH.label, "Replay, also for backfills"
    window, ranges = Action.REPLAY_WINDOW.label, "Replay offset ranges, also from quarantine"
    return {
        Field.ACTION: Param(
            Action.CATCH_UP.value,
            type="string",
            enum=[action.value for action in Action],
            values_display={action.value: action.label for action in Action},
            title="What to do",
            description_md="What is not a plain catch-up needs a **reason**, and the fields of its section below.",
        ),
        Field.REASON: _optional(
            "string", title="Reason", description="Why; recorded in the ledger with your name for ever."
        ),
        Field.MAX_RECORDS: _optional(
            "integer",
            minimum=1,
            section=one_batch,
            title="Records at most",
            description="For this one batch, instead of the pipeline's limit. What is left waits for the next run.",
        ),
        Field.WINDOW_SINCE: _optional(
            "string",
            format="date-time",
            pattern=MOMENT,
            section=window,
            title="From",
            description="Records whose Kafka timestamp is at or after this moment.",
        ),
        Field.WINDOW_UNTIL: _optional(
            "string",
            format="date-time",
            pattern=MOMENT,
            section=window,
            title="Until",
            description="And before this one. A moment in the future means: up to the end of the topic.",
        ),
        Field.RANGES: _optional(
            "array",
            items={"type": "string", "pattern": RANGE_OR_NOTHING},
            section=ranges,
            title="Offset ranges",
            description_md="One per line: `topic[partition] start..until`, for example `orders[3] 1200..1500`; "
            "the offset behind the dots is not part of it. From quarantine: the records of them that lie there, "
            "decoded again from the bytes that were kept; what fails again stays there.",
        ),
        Field.ALLOW_EXPIRED: Param(
            False,
            type="boolean",
            section=replay,
            title="Allow expired records",
            description="Publish again what is left when Kafka has removed records, and record what is gone. "
            "Otherwise the replay is refused and names them.",
        ),
        Field.DRY_RUN: Param(
            False,
            type="boolean",
            section=replay,
            title="Only show what would change",
            description="Read, decode and audit the records, compare the rows with the table, write the outcome to the "
            "plan task's log and the ledger, and publish nothing. Needs no reason.",
        ),
        Field.BATCH_ID: _optional(
            "integer",
            minimum=1,
            section=Action.RETRY_BATCH.label,
            title="Batch",
            description="The number of a blocked batch, as the failed task's log and the ledger name it.",
        ),
    }


def _optional(kind: str, **schema: Any) -> Param:
    return Param(None, type=["null", kind], **schema)
