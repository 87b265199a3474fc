"""``batchledger records`` on real services: what a failed check names can be looked at, wherever it lies."""

import json
import os

import pytest

from batchledger.lifecycle import run_batch
from batchledger.model.errors import BatchBlockedError
from tests.integration.test_cli import ask, batchledger
from tests.support import Workplace, admin_client, delete_records, wait_until

POISON = b"\x00{poison"


def test_records_are_shown_from_kafka_from_quarantine_and_as_missing(workplace: Workplace) -> None:
    """A good record, one in quarantine that Kafka has removed, aborted ones, and one that is not written yet."""
    pipeline = workplace.create(partitions=1, source={"holes": "transactional"})
    pipeline.send_raw([(0, POISON)], key=b"k", headers=[("trace", b"\x01")])
    pipeline.send(2, partitions=1)
    pipeline.send_in_transaction([b"aborted"] * 2, partition=0, commit=False)
    run_batch.run_once(pipeline.platform(), "run")
    delete_records(workplace.kafka_options, pipeline.name, 0, 2)
    found = ask("records", pipeline.name, f"{pipeline.name}[0] 0..8")
    kept, good = found["records"]
    assert (kept["offset"], kept["key"], kept["value"], kept["headers"]) == (
        0,
        "k",
        r"\x00{poison",
        [["trace", r"\x01"]],
    )
    assert kept["quarantined"]
    (look,) = ask("looks", pipeline.name)
    assert (look["records"], look["ranges"], look["actor"]["uid"]) == (2, [f"{pipeline.name}[0] 0..3"], os.getuid())
    assert f"uid {os.getuid()} @" in batchledger("looks", pipeline.name).stdout
    assert {each["decoded"] or each["undecoded"] for each in found["records"]} == {None}
    assert (good["offset"], json.loads(good["value"])["message_id"], good["quarantined"]) == (2, pipeline.sent[1], None)
    spans = {
        name: [(one["start"], one["until"]) for one in found[name]] for name in ("expired", "invisible", "unwritten")
    }
    assert spans == {"expired": [(1, 2)], "invisible": [(3, 6)], "unwritten": [(6, 8)]}


def test_records_in_quarantine_are_shown_when_their_topic_is_gone(workplace: Workplace) -> None:
    pipeline = workplace.create(partitions=1)
    pipeline.send_raw([(0, POISON)])
    pipeline.send(1, partitions=1)
    run_batch.run_once(pipeline.platform(), "run")
    with admin_client(workplace.kafka_options) as admin:
        admin.delete_topics([pipeline.name])[pipeline.name].result(30)
        wait_until(lambda: pipeline.name not in admin.list_topics(timeout=10).topics)
    found = ask("records", pipeline.name, f"{pipeline.name}[0] 0..2")
    assert [(each["offset"], each["value"]) for each in found["records"]] == [(0, r"\x00{poison")]
    assert [(each["start"], each["until"]) for each in found["expired"]] == [(1, 2)]


def test_command_of_a_failed_check_shows_the_records_that_it_names(workplace: Workplace) -> None:
    pipeline = workplace.create(partitions=1, transform="tests.transforms:twice_the_even")
    pipeline.send(5, partitions=1)
    with pytest.raises(BatchBlockedError, match="no_duplicate_offsets") as blocked:
        run_batch.run_once(pipeline.platform(), "run")
    checks = ask("batch", str(blocked.value.batch_id))["checks"]
    observed = next(each["observed"] for each in checks if each["name"] == "no_duplicate_offsets")
    assert observed["coordinates"] == [f"{pipeline.name}[0]@{offset}" for offset in (0, 2, 4)]
    program, *arguments = observed["command"].replace('"', "\0").split("\0")
    assert program.split() == ["batchledger", "records", pipeline.name]
    shown = ask("records", pipeline.name, *(each for each in arguments if each.strip()))
    assert [each["offset"] for each in shown["records"]] == [0, 2, 4]


def test_first_records_of_several_partitions_are_shown_in_order(workplace: Workplace) -> None:
    pipeline = workplace.create(partitions=2)
    pipeline.send(8)
    asked = [f"{pipeline.name}[{number}] 0..4" for number in (1, 0)]
    shown = ask("records", pipeline.name, *asked, "--limit", "5")
    assert [(each["partition"], each["offset"]) for each in shown["records"]] == [
        (0, 0),
        (0, 1),
        (0, 2),
        (0, 3),
        (1, 0),
    ]
    assert shown["is_cut"]
    text = batchledger("records", pipeline.name, f"{pipeline.name}[1]@3").stdout
    assert f"{pipeline.name}[1]@3" in text
    assert pipeline.sent[7] in "".join(text.split())


def test_partition_that_does_not_exist_is_refused(workplace: Workplace) -> None:
    pipeline = workplace.create(partitions=1)
    done = batchledger("records", pipeline.name, f"{pipeline.name}[7] 0..1")
    assert done.returncode == 2
    assert f"Kafka has no partition {pipeline.name}[7]" in " ".join(done.stderr.split())
