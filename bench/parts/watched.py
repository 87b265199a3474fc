"""What writers leave behind that are killed nine times while they write, and whether ``batchledger watch`` names it.

A writer is killed with SIGKILL at random moments and started again; then it runs until everything is there. The command
looks once at its table. Every offset that it names as missing or twice is compared with a count of the bench's own.
"""

import json
import random
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from time import perf_counter
from typing import Any

import yaml

from batchledger.local.stack.defaults import LEDGER_OWNER_CONNECTION
from bench.bench import Bench
from bench.contenders.contender import Contender
from bench.figures import Figure, describe
from bench.orders import CATALOG, NAMESPACE, Order, Sink
from bench.own_count import Offset, OwnCount, compare, read_table, read_topic
from bench.parts.kills import HASTE, TRIES_AT_MOST, kill_while_writing, take_to_the_end, time_undisturbed
from bench.records import Topic
from bench.services import ROOT, Services
from bench.taking import find_target, new_order
from bench.targets.lake import plain_table
from bench.targets.table import SCHEMA, identify

PART = "watched"
KILLS = 9
WRONG = 3
"""The exit code of a command whose table is wrong."""
_RANGE = re.compile(r".+\[(\d+)\] (\d+)\.\.(\d+)")


def measure(bench: Bench, contender: Contender, topic: Topic, seed: int) -> Iterator[Figure]:
    """Yield what a writer has left, what was named wrongly of it, and how long the look took.

    It is killed nine times, and then ends. If it is done before a kill, all begins again with earlier kills.
    """
    chance = random.Random(seed)  # noqa: S311 - moments, not secrets
    bench.say(f"killing at random moments, seed {seed}")
    seconds = min(time_undisturbed(bench, contender, topic) for _ in range(2))
    for tries in range(TRIES_AT_MOST):
        order = new_order(contender.subject, topic)
        with find_target(bench.services, order.sink).fresh(order.target):
            if not _kill(bench, contender, order, chance, seconds * HASTE**tries):
                continue
            take_to_the_end(bench, contender, order)
            own = count(bench.services, order)
            started = perf_counter()
            named = look(bench.services, order)
            taken = perf_counter() - started
        wrong = len(own.missing ^ named.missing) + len(own.twice ^ named.twice)
        bench.say(
            f"{contender.subject.title}, killed {KILLS} times: {len(own.missing):,} rows missing, "
            f"{len(own.twice):,} offsets twice; {wrong:,} of them named wrongly, in {taken:.1f} s"
        )
        yield from describe(
            PART,
            contender.subject.name,
            kills=KILLS,
            records=topic.records,
            missing=len(own.missing),
            twice=len(own.twice),
            named_wrongly=wrong,
            look_seconds=taken,
        )
        return
    raise RuntimeError(f"{contender.subject.title} was done before each kill, {TRIES_AT_MOST} times")


def _kill(bench: Bench, contender: Contender, order: Order, chance: random.Random, seconds: float) -> bool:
    """Kill nine times; whether every kill has met a process at work."""
    for _ in range(KILLS):
        with contender.start(bench.services) as running:
            running.prepare(order)
            if not kill_while_writing(bench, running, order, chance.uniform(0, seconds / KILLS)):
                return False
    return True


def count(services: Services, order: Order) -> OwnCount:
    """Count for ourselves."""
    if order.sink is Sink.ICEBERG:
        with plain_table(services.home, order.target) as table:
            rows = table.read_offsets()
    else:
        rows = read_table(services.dsn, identify(order.target))
    return compare(read_topic(services.kafka_options, order.topic), rows)


def look(services: Services, order: Order) -> OwnCount:
    """Let the command look at the table; return what it names."""
    write_watch(services.home.pipelines, order)
    command = (str(Path(sys.executable).with_name("batchledger")), "watch", order.name, "--json")
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode not in {0, WRONG}:
        raise RuntimeError(f"batchledger watch ended with {done.returncode}: {done.stderr}")
    (document,) = json.loads(done.stdout)
    return read_named(document)


def write_watch(folder: Path, order: Order) -> None:
    """Write the file of a watch: all records are old enough. Two presets name the columns."""
    is_lake = order.sink is Sink.ICEBERG
    place = {"catalog": CATALOG} if is_lake else {"connection": "warehouse"}
    content = {
        "watch": order.name,
        "source": {"topics": [order.topic]},
        "table": {**place, "name": f"{NAMESPACE if is_lake else SCHEMA}.{order.target}"},
        "coordinates": "iceberg_sink" if is_lake else "batchledger",
        "lateness": "0s",
        "ledger": LEDGER_OWNER_CONNECTION,
    }
    (folder / f"{order.name}.yaml").write_text(yaml.safe_dump(content))


def read_named(document: Mapping[str, Any]) -> OwnCount:
    """Return the offsets that a look names. Raises RuntimeError if it finds anything else, or names too few."""
    named: dict[str, frozenset[Offset]] = {"missing": frozenset(), "twice": frozenset()}
    for found in document["found"]:
        offsets = frozenset(offset for each in found["ranges"] for offset in _list_offsets(each))
        if found["difference"] not in named or len(offsets) != found["count"]:
            raise RuntimeError(f"found, and not named to the offset: {found}")
        named[found["difference"]] = offsets
    return OwnCount(**named)


def _list_offsets(text: str) -> Iterator[Offset]:
    found = _RANGE.fullmatch(text)
    if found is None:
        raise RuntimeError(f"{text} is no range of offsets")
    partition, start, until = map(int, found.groups())
    yield from ((partition, offset) for offset in range(start, until))
