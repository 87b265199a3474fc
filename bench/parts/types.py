"""What the types of columns cost: the topic of the bench under schemas that differ in one column."""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from bench.bench import Bench
from bench.contenders import batchledger
from bench.figures import Figure
from bench.parts.throughput import describe_taken
from bench.records import SCHEMA, Fields, describe, write_topic
from bench.taking import take, warm_up

PART = "types"
TEXTS = "all columns as strings"
DOUBLE, FLOAT, DECIMAL, NESTED = "a double", "a float", "a decimal", "nested JSON, as its text"
_SCHEMA_BY_SUBJECT = {
    TEXTS: "message_id string, device_id string, seq string, amount string, note string",
    DOUBLE: SCHEMA,
    FLOAT: SCHEMA.replace("double", "float"),
    DECIMAL: SCHEMA.replace("double", "decimal(18,2)"),
    NESTED: SCHEMA,
}


def measure(bench: Bench) -> Iterator[Figure]:
    """Yield the figures of one batch of each schema in every round."""
    others = {
        name: write_topic(bench.services, bench.topic.records, str(fields), write=partial(describe, fields=fields))
        for name, fields in ((TEXTS, Fields.TEXTS), (NESTED, Fields.NESTED))
    }
    contender = batchledger.describe("exactly_once", bench.topic.records)
    topics = {name: others.get(name, bench.topic) for name in _SCHEMA_BY_SUBJECT}
    subjects = {
        name: replace(contender.subject, settings={**contender.subject.settings, "schema": schema})
        for name, schema in _SCHEMA_BY_SUBJECT.items()
    }
    with contender.start(bench.services) as running:
        for name, subject in subjects.items():
            warm_up(bench, subject, running, topics[name])
        for number in range(bench.rounds):
            for name, subject in subjects.items():
                taken = take(bench.services, subject, running, topics[name])
                bench.say(f"round {number + 1} of {bench.rounds}, {name}: {taken.rows_per_second:,.0f} rows/s")
                yield from describe_taken(PART, name, taken)
