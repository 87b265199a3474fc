"""Put the platform under torture on one stack: with each protection taken out, then whole, under the quick faults.

    python -m tests.faults.torture_controls

Standard output is one JSON document: the reports by the name of the protection, ``campaign`` for the one of the whole
platform, ``kafka`` and ``iceberg`` for the same with rows that go to a sink that commits by itself, and what the
checker says of rows that two transactions have shown in the wrong order.
"""

import json
import sys
import time
import uuid

import psycopg
from psycopg import sql
from rich.console import Console

from batchledger.local.stack import Home
from batchledger.local.torture.checker import compare, read_target
from batchledger.local.torture.records import IntendedRecord, WriteKind
from batchledger.local.torture.rig import Rig, build_rig
from batchledger.local.torture.run import run_rounds, torture_home
from batchledger.local.torture.schedule import (
    EXACTLY_ONCE,
    Chunk,
    Fault,
    FaultKind,
    Protection,
    Round,
    SinkKind,
    Way,
    plan_control,
)

ROUNDS = 1
SEED = 1
RECORDS = (Chunk(WriteKind.IDEMPOTENT, 20), Chunk(WriteKind.ABORT, 5), Chunk(WriteKind.COMMIT, 20))
QUICK_FAULTS = (
    Fault(FaultKind.CUT, "rows_moved", way=Way.WAREHOUSE),
    Fault(FaultKind.CUT, "attempt_opened", way=Way.KAFKA),
    Fault(FaultKind.CUT_STREAM, received=100),
    Fault(FaultKind.DELAY, seconds=0.003, way=Way.WAREHOUSE),
    Fault(FaultKind.BLACK_HOLE, "staged", 0.05, Way.WAREHOUSE),
    Fault(FaultKind.LOSE_COMMIT_REPLY, "before_commit"),
    Fault(FaultKind.ABORT_LATE),
    Fault(FaultKind.EXPIRE_RECORDS),
    Fault(FaultKind.ADD_PARTITION),
    Fault(FaultKind.STOP_WORKER, "rows_moved"),
    Fault(FaultKind.RESTART_POSTGRES, "positions_moved"),
    Fault(FaultKind.CRASH_POSTGRES, "audited"),
    Fault(FaultKind.RESTART_BROKER, "plan_stored"),
    Fault(FaultKind.DEADLY_RECORDS),
    Fault(FaultKind.CHANGE_SETTINGS, "attempt_opened"),
)

# Who is paused once the sink has committed holds the pipeline for a minute: that is for the long campaigns.
FAULTS_BY_SINK = {
    SinkKind.KAFKA: (
        Fault(FaultKind.PAUSE_WORKER, "announced"),
        Fault(FaultKind.CUT, "before_commit", way=Way.KAFKA),
        Fault(FaultKind.CRASH_POSTGRES, "sink_committed"),
        Fault(FaultKind.CLOCK_AHEAD, "attempt_opened"),
    ),
    SinkKind.ICEBERG: (
        Fault(FaultKind.PAUSE_WORKER, "announced"),
        Fault(FaultKind.KILL_WORKER, "sink_committed"),
        Fault(FaultKind.CRASH_POSTGRES, "before_commit"),
    ),
}


def main() -> None:
    """Run them all."""
    console = Console(stderr=True)
    with build_rig(torture_home(Home.of_project()), console.print) as rig:
        reports = {
            str(each): run_rounds(rig, plan_control(SEED, ROUNDS, each), SEED, console, without=each).as_document()
            for each in Protection
        }
        started = time.monotonic()
        campaign = run_rounds(rig, [Round(1, EXACTLY_ONCE, RECORDS, RECORDS, QUICK_FAULTS)], SEED, console)
        console.print(f"campaign: {time.monotonic() - started:.1f} s")
        by_sink = {}
        for sink, faults in FAULTS_BY_SINK.items():
            rounds = [Round(1, EXACTLY_ONCE, RECORDS, RECORDS, faults)]
            by_sink[str(sink)] = run_rounds(rig, rounds, SEED, console, sink=sink).as_document()
            console.print(f"campaign of {sink}: {time.monotonic() - started:.1f} s after it")
        late = show_in_the_wrong_order(rig)
    campaigns = {"campaign": campaign.as_document(), **by_sink}
    sys.stdout.write(json.dumps({"controls": reports, **campaigns, "late": late}))


def show_in_the_wrong_order(rig: Rig) -> list[str]:
    """Commit a batch with a higher number before the one with the records that go first; return what is found."""
    table = f"late_{uuid.uuid4().hex[:8]}"
    first, second = (IntendedRecord.make(f"id{number}", "key", number) for number in range(2))
    insert = sql.SQL("insert into {} values (%s, %s, %s, %s, %s, 0, %s, %s)").format(sql.Identifier(table))

    def show(connection: psycopg.Connection, record: IntendedRecord, batch_id: int) -> None:
        values = [record.record_id, record.record_key, record.sequence, record.payload]
        connection.execute(insert, [*values, table, record.sequence, batch_id])
        connection.commit()

    with psycopg.connect(rig.dsn) as early, psycopg.connect(rig.dsn) as late:
        early.execute(
            sql.SQL(
                "create table {} (record_id text, record_key text, sequence bigint, payload text, _topic text, "
                "_partition int, _offset bigint, _batch_id bigint)"
            ).format(sql.Identifier(table))
        )
        early.commit()
        # Its number is the lower one, and its transaction the older.
        early.execute("select pg_current_xact_id()")
        show(late, second, batch_id=2)
        show(early, first, batch_id=1)
    log = {(0, each.sequence): each for each in (first, second)}
    return list(compare(table, log, read_target(rig.dsn, table), ()).out_of_order)


if __name__ == "__main__":
    main()
