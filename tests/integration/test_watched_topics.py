"""A watch of a compacted topic, and the command from its file to its exit code."""

from pathlib import Path

from batchledger.local.stack.defaults import LEDGER_OWNER_CONNECTION
from batchledger.model.balance import HolePolicy
from batchledger.model.offsets import OffsetRange, TopicPartition
from batchledger.proof.watching import WatchOutcome
from tests.conftest import Kafka, TestServices
from tests.integration.test_cli import ask, batchledger
from tests.integration.test_holes import COMPACTED, clean_often
from tests.runner import RUNNER
from tests.support import wait_until
from tests.watched import WatchedTopic, open_shop


def test_compacted_offsets_are_holes_and_a_row_may_outlive_its_record(kafka: Kafka, warehouse_dsn: str) -> None:
    shop = WatchedTopic(kafka.options, warehouse_dsn, settings=COMPACTED)
    clean_often(kafka.options)
    partition = TopicPartition(shop.name, 0)

    def find_left() -> list[OffsetRange]:
        held = shop.source.read_log([shop.name]).log_by_partition[partition]
        return list(shop.source.find_records([OffsetRange(partition, held.log_start, held.end)]))

    def is_compacted() -> bool:
        shop.produce(1, key="same")
        return len(find_left()) > 1 or find_left()[0].start > 5

    wait_until(is_compacted, seconds=120)
    left = [offset for each in find_left() for offset in range(each.start, each.until)]
    shop.insert({0, *left})
    look = shop.look(shop.watch(holes=HolePolicy.COMPACTED))
    assert (look.outcome, look.found) == (WatchOutcome.PROVED, ())
    assert look.holes["compacted"] == look.offsets - look.rows > 0


def test_command_reads_the_file_and_ends_with_the_code_of_its_outcome(
    kafka: Kafka, warehouse_dsn: str, services: TestServices
) -> None:
    shop = open_shop(kafka.options, warehouse_dsn)
    path = Path(services.home.pipelines) / f"{shop.name}.yaml"
    path.write_text(
        f"watch: {shop.name}\nsource: {{topics: [{shop.name}]}}\nlateness: 0\n"
        f"table: {{connection: warehouse, name: public.{shop.name}}}\n"
        "coordinates: {partition: kafka_partition, offset: kafka_offset}\n"
    )
    shop.run(f"grant select on {{table}} to {RUNNER}")
    try:
        refused = batchledger("watch", shop.name)
        assert refused.returncode == 2
        assert "batchledger grant" in refused.stderr
        ask("grant", shop.name, "--role", RUNNER, "--apply", "--login", LEDGER_OWNER_CONNECTION)
        done = batchledger("watch", shop.name)
        assert done.returncode == 0, done.stderr
        assert f"{shop.name}: proved. 10 offsets in Kafka, 10 rows, 1 partition" in done.stdout
        assert "reads about" in done.stderr
        shop.delete([4])
        wrong = batchledger("watch", shop.name, "--all")
        assert wrong.returncode == 3
        assert f"{shop.name}[0] 4" in wrong.stdout
        assert ask("watch", shop.name, "--forget")[0]["forgotten"]
    finally:
        path.unlink()
