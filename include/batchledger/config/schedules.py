"""When runs of a pipeline begin: at times, and when there are records."""

from typing import Annotated

from batchledger.settings.values import Duration, Section, lasting

SCHEDULE_PRESETS = ("@once", "@hourly", "@daily", "@weekly", "@monthly", "@quarterly", "@yearly", "@continuous")
# Without an interval that Airflow could hand to a run: the first run only, and one run after the other.
SCHEDULES_WITHOUT_INTERVAL = ("@once", "@continuous")

_LONGEST_SCHEDULE = 200


def check_cron(value: str) -> str:
    """Return a schedule that Airflow takes. Raises ValueError."""
    from croniter import croniter

    is_short = len(value) <= _LONGEST_SCHEDULE
    if value not in SCHEDULE_PRESETS and not (is_short and croniter.is_valid(value)):
        raise ValueError(f'not a cron expression; write for example "*/5 * * * *", or {", ".join(SCHEDULE_PRESETS)}')
    return value


class StartOnRecordsConfig(Section):
    """Runs also begin when there are records, beside `schedule` or without one. `start_on_records: {}` is enough."""

    check_every: Annotated[Duration, lasting(1, "an interval is 1s at least and 1h at most", most=3600)] = 1.0
    """How often Kafka is asked, `1s` to `1h`."""
