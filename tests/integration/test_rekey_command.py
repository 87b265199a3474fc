"""``batchledger rekey`` and ``migrate`` on real services, with the secret of the local services' connection."""

import psycopg
from psycopg import sql

from batchledger.ledger.migrate import migrate
from batchledger.local.stack.defaults import LEDGER_USER
from batchledger.model.hashing import fingerprint_of
from tests.conftest import SERVICES, lend_database
from tests.integration.test_cli import ask, batchledger
from tests.integration.test_grant_command import as_connection
from tests.support import Workplace

FINGERPRINT = fingerprint_of(SERVICES.credentials.key_secret.encode())


def read_fingerprints(dsn: str) -> list[bytes]:
    with psycopg.connect(dsn) as connection:
        return [found for (found,) in connection.execute("select fingerprint from batchledger.key_secret")]


def test_keys_of_runs_before_the_command_are_known_to_runs_after_it(workplace: Workplace) -> None:
    pipeline = workplace.create(
        sink={"connection": "team"}, dedupe={"key": ["message_id"], "remember": "7d"}, partitions=1
    )
    name, records = (
        pipeline.name,
        [(0, b'{"message_id": "%d", "number": 1, "amount": 1.5}' % each) for each in range(4)],
    )
    with lend_database(workplace.dsn) as dsn:
        migrate(dsn)
        team = as_connection(dsn)
        pipeline.send_raw(records)
        ask("run", name, AIRFLOW_CONN_TEAM=team)
        rekeyed = ask("rekey", name, AIRFLOW_CONN_TEAM=team)
        assert (rekeyed["keys"]["message_key"], rekeyed["used_by"]) == (4, LEDGER_USER)
        assert read_fingerprints(dsn) == [FINGERPRINT]
        pipeline.send_raw([*records, (0, b'{"message_id": "new", "number": 1, "amount": 1.5}')])
        ask("run", name, AIRFLOW_CONN_TEAM=team)
        with psycopg.connect(dsn) as connection:
            rows = connection.execute(sql.SQL("select message_id from {}").format(sql.Identifier(f"{name}_target")))
            assert sorted(id_ for (id_,) in rows) == ["0", "1", "2", "3", "new"]
        assert ask("verify", name, AIRFLOW_CONN_TEAM=team)["holds"]
        told = " ".join(batchledger("rekey", name, AIRFLOW_CONN_TEAM=team).stdout.split())
        assert f"with this secret already. The login {LEDGER_USER} did that at " in told


def test_migration_of_a_new_ledger_takes_the_secret_over(workplace: Workplace) -> None:
    pipeline = workplace.create(sink={"connection": "team"})
    with lend_database(workplace.dsn) as dsn:
        ask("migrate", pipeline.name, AIRFLOW_CONN_TEAM=as_connection(dsn))
        assert read_fingerprints(dsn) == [FINGERPRINT]
