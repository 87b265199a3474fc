"""Adds up how late the planes of each carrier arrive, for each batch as soon as it is published."""

from datetime import timedelta
from typing import Any

from airflow.providers.postgres.hooks.postgres import PostgresHook
from airflow.sdk import AssetAlias, dag, task

FLIGHTS = AssetAlias("warehouse/public.flights")

# One transaction, which may run again. Because of the lock, runs that meet write one after the other.
STATEMENTS = [
    """
    create table if not exists public.flights_by_carrier
        (batch_id bigint, carrier text, arrived bigint, minutes_late float, primary key (batch_id, carrier))
    """,
    "lock table public.flights_by_carrier in share row exclusive mode",
    """
    delete from public.flights_by_carrier
    where %(batch_ids)s::bigint[] is null or batch_id = any(%(batch_ids)s)
    """,
    """
    insert into public.flights_by_carrier
    select _batch_id, carrier, count(arr_delay), sum(arr_delay) from public.flights
    where %(batch_ids)s::bigint[] is null or _batch_id = any(%(batch_ids)s)
    group by 1, 2
    """,
]


# No max_active_runs: an event that finds as many runs active as there may be waits for the next event.
@dag(schedule=[FLIGHTS], catchup=False)
def flights_by_carrier() -> None:
    """Run after each batch, or once after several that come close together."""

    @task(retries=3, retry_delay=timedelta(seconds=10))
    def add_up(triggering_asset_events: Any = None) -> None:
        events = triggering_asset_events[FLIGHTS]
        batch_ids = sorted({event.extra["batch_id"] for event in events})
        # A replay takes rows over from older batches. A run that a person has triggered has no event.
        is_every = not events or any(event.extra["lane"] == "replay" for event in events)
        PostgresHook("warehouse").run(STATEMENTS, parameters={"batch_ids": None if is_every else batch_ids})

    add_up()


flights_by_carrier()
