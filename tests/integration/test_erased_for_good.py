"""A person whose rows were erased does not come back, by whatever command the offsets are read again.

One life on a real broker, Spark and database. The matrix of all orders, modes and records is ``test_erasing_paths.py``.
"""

import json
from collections.abc import Callable

from batchledger.lifecycle import run_batch
from batchledger.wiring import verify_pipeline
from tests.conftest import TestServices, as_superuser
from tests.integration.test_cli import ask
from tests.integration.test_replay_command import change
from tests.leaks import find_leaks
from tests.support import TestPipeline, Workplace

ANNA = "anna-canary-5e1c"
BEFORE, NOW = "message_id string, car string, person string, amount int", ", seen date"
WHY = ("--reason", "ticket 812")
CHECK = {"type": "expect_column_values_to_not_be_null", "column": "amount", "on_failure": "quarantine"}
LOG: tuple[tuple[str, str, str, object], ...] = (
    ("m0", "car1", "otto", 0),
    ("m1", "car1", ANNA, 1),
    ("m2", "car2", ANNA, 2),
    ("m2", "car2", "dora", 3),
    ("m4", "car3", ANNA, 4),
    ("m5", "car3", "carl", 5),
    ("m6", "car6", ANNA, "?"),
    ("m7", "car7", "emma", "?"),
    ("m8", "car8", ANNA, None),
    ("m9", "car9", "emil", 9),
)
"""Message, car, driver and amount. Anna has rows, an older one, a repeated one, one that does not decode, and one that
a check refuses. Once there is a date, none of her records decodes."""
OLDER, UNREADABLE = 4, 7


def record(message: str, car: str, person: str, amount: object) -> bytes:
    seen = "yesterday" if person == ANNA else "2026-11-27"
    fields = {"message_id": message, "car": car, "person": person, "amount": amount, "seen": seen}
    return json.dumps(fields).encode()


def replay_again(pipeline: TestPipeline) -> None:
    ask("replay", pipeline.name, "--range", f"{pipeline.name}[0] 0..4", *WHY)


def replay_quarantine(pipeline: TestPipeline) -> None:
    ask("quarantine", "replay", pipeline.name, "--all", *WHY)


def rewind_with_a_date(pipeline: TestPipeline) -> None:
    change(pipeline, source={"schema": BEFORE + NOW})
    ask("rewind", pipeline.name, "--to", "earliest", *WHY)
    run_batch.run_once(pipeline.platform(), "rewound")


def rewind_and_truncate_without_it(pipeline: TestPipeline) -> None:
    change(pipeline, source={"schema": BEFORE})
    ask("rewind", pipeline.name, "--to", "earliest", "--truncate", *WHY)
    run_batch.run_once(pipeline.platform(), "truncated")


WAYS: tuple[tuple[Callable[[TestPipeline], None], set[int]], ...] = (
    (replay_again, {UNREADABLE}),
    (replay_quarantine, {UNREADABLE}),
    (rewind_with_a_date, {OLDER, UNREADABLE}),
    (rewind_and_truncate_without_it, {UNREADABLE}),
)


def test_person_who_was_erased_is_nowhere_whatever_is_read_again(workplace: Workplace, services: TestServices) -> None:
    pipeline = workplace.create(
        partitions=1,
        source={"schema": BEFORE},
        sink={"mode": "upsert", "key": ["car"], "evolve": "add"},
        dedupe={"key": ["message_id"], "remember": "30d"},
        checks=[CHECK],
        quarantine={"max_share": 1},
    )
    pipeline.send_raw([(0, record(*each)) for each in LOG])
    run_batch.run_once(pipeline.platform(), "first")
    rows = "select car, person, amount from {target} order by car"
    aside = "select \"offset\", convert_from(value, 'utf8') from batchledger.quarantine where pipeline = %s"
    assert [person for _, person, _ in pipeline.query(rows)] == [ANNA, ANNA, "carl", "emil"]
    assert dict(pipeline.query(aside, pipeline.name)).keys() == {6, 7, 8}
    ask("erase", pipeline.name, "--key", f"person={ANNA}", *WHY)
    for way, left in WAYS:
        way(pipeline)
        assert pipeline.query(rows) == [("car3", "carl", 5), ("car9", "emil", 9)], way.__name__
        found = dict(pipeline.query(aside, pipeline.name))
        assert (found.keys(), found.get(OLDER)) == (left, None), way.__name__
        assert verify_pipeline(pipeline.config).holds
    leaks = find_leaks({"anna": ANNA}, services.home.local, as_superuser(workplace.dsn))
    # Kafka has the records; the broker is the pipeline's source.
    assert [place for place in leaks if not place.startswith("kafka/")] == []
