"""``batchledger grant`` on real services: what it prints is enough for a role to run a pipeline, and less is not."""

import json

import psycopg
from psycopg.conninfo import conninfo_to_dict

from batchledger.ledger.schema import NEWEST_MIGRATION
from batchledger.local.stack.defaults import LEDGER_OWNER_CONNECTION
from tests.conftest import as_superuser, lend_database
from tests.contract.warehouses import create_role, role_of
from tests.integration.test_cli import ask, batchledger
from tests.support import Workplace


def test_granted_role_runs_its_pipeline_and_proves_it(workplace: Workplace) -> None:
    pipeline = workplace.create(sink={"connection": "team"})
    with create_role(workplace.dsn) as team_dsn:
        owner, team = as_connection(workplace.dsn), as_connection(team_dsn)
        to_team = (pipeline.name, "--role", role_of(team_dsn))
        refused = batchledger("grant", *to_team, "--apply", AIRFLOW_CONN_TEAM=owner)
        assert refused.returncode == 2
        assert "is not there. Nothing was granted" in refused.stderr
        pipeline.send(4)
        ask("run", pipeline.name, AIRFLOW_CONN_TEAM=owner)
        pipeline.send(4)
        shown = ask("grant", *to_team, AIRFLOW_CONN_TEAM=owner)
        assert not shown["applied"]
        refused = batchledger("run", pipeline.name, AIRFLOW_CONN_TEAM=team)
        assert "permission denied for schema batchledger" in refused.stderr
        with psycopg.connect(workplace.dsn) as connection:
            printed = batchledger("grant", *to_team, AIRFLOW_CONN_TEAM=owner).stdout
            assert printed.endswith(";\n-- Nothing was executed. To execute it: repeat with --apply.\n")
            connection.execute(printed.encode())
        (published,) = ask("run", pipeline.name, AIRFLOW_CONN_TEAM=team)
        assert (published["state"], pipeline.count_target_rows()) == ("published", 8)
        assert ask("verify", pipeline.name, AIRFLOW_CONN_TEAM=team)["holds"]
        assert pipeline.find_differences() == {}
        assert ask("grant", *to_team, "--apply", AIRFLOW_CONN_TEAM=owner)["applied"]
        migrated = ask("migrate", pipeline.name, AIRFLOW_CONN_TEAM=owner)
        assert migrated["before"] == migrated["after"]
        applied = batchledger("grant", *to_team, "--apply", AIRFLOW_CONN_TEAM=owner).stdout
        assert applied.endswith(f"-- Granted to {role_of(team_dsn)}.\n")


def test_role_that_is_granted_all_runs_a_pipeline_that_comes_later(workplace: Workplace) -> None:
    """The owner of the ledger logs in by a connection of its own, and grants; the pipeline's login could not."""
    before = workplace.create()
    with create_role(workplace.dsn) as team_dsn:
        to_all = (before.name, "--all", "--role", role_of(team_dsn))
        refused = batchledger("grant", *to_all, "--apply")
        assert refused.returncode == 2
        assert "permission denied" in refused.stderr
        assert "--login" in refused.stderr
        granted = ask("grant", *to_all, "--apply", "--login", LEDGER_OWNER_CONNECTION)
        assert (granted["pipeline"], granted["applied"]) == (None, True)
        with psycopg.connect(as_superuser(workplace.dsn)) as connection:
            connection.execute(f"grant create on schema public to {role_of(team_dsn)}".encode())
        later = workplace.create(sink={"connection": "team"})
        later.send(4)
        (published,) = ask("run", later.name, AIRFLOW_CONN_TEAM=as_connection(team_dsn))
        assert published["state"] == "published"
        proved = ask("verify", later.name, AIRFLOW_CONN_TEAM=as_connection(team_dsn))
        assert (proved["holds"], proved["rows"]) == (True, 4)
        assert ask("migrate", before.name, "--login", LEDGER_OWNER_CONNECTION)["after"] == NEWEST_MIGRATION
        with lend_database(workplace.dsn) as other:
            elsewhere = batchledger(
                "rekey", before.name, "--login", "elsewhere", AIRFLOW_CONN_ELSEWHERE=as_connection(other)
            )
            assert elsewhere.returncode == 2
            assert "leads to another database than the ledger" in elsewhere.stderr
        unknown = batchledger("migrate", before.name, "--login", "no_such_connection")
        assert "--login: " in unknown.stderr


def as_connection(dsn: str) -> str:
    """What Airflow reads from the environment."""
    parts = {name: str(value) for name, value in conninfo_to_dict(dsn).items()}
    return json.dumps(
        {
            "conn_type": "postgres",
            "host": parts["host"],
            "port": int(parts["port"]),
            "login": parts["user"],
            "password": parts["password"],
            "schema": parts["dbname"],
        }
    )
