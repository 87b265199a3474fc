"""What every part of the local services agrees on: versions, ports, connection ids. Values only.

docker-compose.yaml repeats these; a test holds the two together.
"""

KAFKA_VERSION = "4.2.1"
POSTGRES_VERSION = "18.6.0"
SPARK_VERSION = "4.1.3"
AIRFLOW_VERSION = "3.3.2"
REGISTRY_VERSION = "3.0.9"

KAFKA_CONNECTION = "kafka_default"
WAREHOUSE_CONNECTION = "warehouse"
LEDGER_OWNER_CONNECTION = "ledger_owner"
LAKE_CONNECTION = "lake"
SPARK_CONNECTION = "spark_default"
REGISTRY_CONNECTION = "registry_default"
KEYS_CONNECTION = "batchledger_keys"

PORT_BY_SERVICE = {
    "kafka": 19092,
    "kafka_controller": 19093,
    "postgres": 15432,
    "spark": 15002,
    "airflow": 18080,
    "registry": 18081,
}

WAREHOUSE_DATABASE = "warehouse"
AIRFLOW_DATABASE = "airflow"
LEDGER_USER = "ledger"
DATABASE_USER = "batchledger"
AIRFLOW_DATABASE_USER = "airflow"
DATABASE_SUPERUSER = "postgres"
KAFKA_USER = "batchledger"
