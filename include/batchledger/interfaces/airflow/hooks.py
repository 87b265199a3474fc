"""The types of connections in Airflow's form that Batchledger brings, and what is behind *Test* there."""

from typing import Any, ClassVar

from airflow.sdk import BaseHook
from typing_extensions import override


class _Hook(BaseHook):
    """A connection of one type. Batchledger itself reads connections without a hook."""

    conn_name_attr: ClassVar[str] = "connection_id"
    conn_type: ClassVar[str]
    hook_name: ClassVar[str]

    def __init__(self, connection_id: str, **settings: Any) -> None:
        super().__init__(**settings)
        self.connection_id = connection_id

    def test_connection(self) -> tuple[bool, str]:
        """Return whether the service answers, and in words what it is, or what is wrong. No words hold a secret."""
        from batchledger.interfaces.trials import try_connection

        answer = try_connection(self.connection_id)
        return answer.error is None, answer.words if answer.error is None else str(answer.error)


class KafkaHook(_Hook):
    """Kafka: which cluster answers."""

    conn_type = "kafka"
    hook_name = "Apache Kafka"


class IcebergHook(_Hook):
    """A catalog of Iceberg: how many namespaces it has."""

    conn_type = "iceberg"
    hook_name = "Apache Iceberg"


class HttpHook(_Hook):
    """A schema registry, or a webhook, which has no test: only a message would show whether it takes one."""

    conn_type = "http"
    hook_name = "HTTP"

    @override
    def test_connection(self) -> tuple[bool, str]:
        is_good, words = super().test_connection()
        webhook = "A webhook has no test here: only a message would show it, batchledger alerts test CONNECTION"
        return is_good, words if is_good else f"{words}\n{webhook}"
