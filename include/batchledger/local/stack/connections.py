"""The stack's Airflow connections, in the file that Airflow's local secrets backend reads. It holds passwords."""

import json

from batchledger.local.stack.defaults import (
    DATABASE_USER,
    KAFKA_CONNECTION,
    KEYS_CONNECTION,
    LAKE_CONNECTION,
    LEDGER_OWNER_CONNECTION,
    LEDGER_USER,
    REGISTRY_CONNECTION,
    SPARK_CONNECTION,
    WAREHOUSE_CONNECTION,
    WAREHOUSE_DATABASE,
)
from batchledger.local.stack.home import Credentials, Home, Ports, write_private
from batchledger.local.stack.kafka_broker import client_options
from batchledger.local.stack.machine import HOST
from batchledger.local.stack.schema_registry import registry_url


def write_connections(home: Home, ports: Ports, credentials: Credentials) -> None:
    """Write the file anew."""
    write_private(home.connections_file, json.dumps(list_connections(home, ports, credentials), indent=2))


def list_connections(home: Home, ports: Ports, credentials: Credentials) -> dict[str, dict[str, object]]:
    """The connections by id, in Airflow's own words."""
    warehouse = {
        "conn_type": "postgres",
        "host": HOST,
        "port": ports.postgres,
        "login": DATABASE_USER,
        "schema": WAREHOUSE_DATABASE,
        # Tasks of Spark carry the connection. They run as this user, so they can read the password for themselves.
        "extra": {"passfile": str(home.database_password_file)},
    }
    return {
        KAFKA_CONNECTION: {"conn_type": "kafka", "extra": client_options(ports, credentials)},
        WAREHOUSE_CONNECTION: warehouse,
        LEDGER_OWNER_CONNECTION: warehouse | {"login": LEDGER_USER},
        LAKE_CONNECTION: {
            "conn_type": "iceberg",
            "host": HOST,
            "port": ports.postgres,
            "login": DATABASE_USER,
            "password": credentials.database_password,
            "schema": WAREHOUSE_DATABASE,
            "extra": {"type": "sql", "warehouse": home.lake.as_uri()},
        },
        SPARK_CONNECTION: {
            # Written as in a URI, which allows no underscore in a scheme. Otherwise Airflow warns at every use.
            "conn_type": "spark-connect",
            "host": "sc://localhost",
            "port": ports.spark,
            "password": credentials.spark_token,
        },
        # The secret that keys are hashed with: no service is behind it.
        KEYS_CONNECTION: {"conn_type": "generic", "password": credentials.key_secret},
        # Also if the registry does not run: a client then says that it cannot be reached.
        REGISTRY_CONNECTION: {"conn_type": "http", "host": registry_url(ports)},
    }
