"""The Kafka broker: one node that is broker and controller (KRaft), data under ``.local/kafka``.

Both listeners ask for a login, because every user of the machine can reach their ports.
"""

import base64
import os
import uuid
from collections.abc import Mapping

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from batchledger.local.stack import processes
from batchledger.local.stack.defaults import KAFKA_USER
from batchledger.local.stack.home import Credentials, Home, Ports, private_folder, write_private
from batchledger.local.stack.jars import fetch_jars
from batchledger.local.stack.machine import HOST, find_java
from batchledger.local.stack.processes import Launch
from batchledger.local.stack.service import Service, base_environment

# With 21,000 partitions, 512 MB left the broker time for nothing but collecting garbage.
_HEAP = ("-Xms128m", "-Xmx1g", "-XX:+UseSerialGC", "-XX:-UsePerfData")
_LOGIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"

LOG_PROPERTIES = """\
rootLogger.level = warn
rootLogger.appenderRef.stdout.ref = stdout
logger.server.name = kafka.server
logger.server.level = error
# A broker that was killed reads its log before it answers, which may take minutes. Its progress shows that it works.
logger.recovery.name = org.apache.kafka.storage.internals.log.LogLoader
logger.recovery.level = info
logger.logs.name = kafka.log.LogManager
logger.logs.level = info
appender.stdout.type = Console
appender.stdout.name = stdout
appender.stdout.layout.type = PatternLayout
appender.stdout.layout.pattern = %d{ISO8601} %p %c{1}: %m%n
"""


def kafka_service(home: Home, ports: Ports, credentials: Credentials, advertised: Ports | None = None) -> Service:
    """The broker; it is healthy when it answers a client. ``advertised`` is where it sends its clients."""
    return Service(
        name="kafka",
        ports=("kafka", "kafka_controller"),
        prepare=lambda: _prepare(home, ports, credentials, advertised),
        is_healthy=lambda _: _answers(client_options(ports, credentials)),
    )


def bootstrap_servers(ports: Ports) -> str:
    """The broker's address, as clients want it."""
    return f"{HOST}:{ports.kafka}"


def client_options(ports: Ports, credentials: Credentials) -> dict[str, str]:
    """The broker's address, and the login that it asks for, as librdkafka and Airflow's connections name them."""
    return {
        "bootstrap.servers": bootstrap_servers(ports),
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": KAFKA_USER,
        "sasl.password": credentials.kafka_password,
    }


def java_options(options: Mapping[str, str]) -> dict[str, str]:
    """What clients in Java call the ``client_options``."""
    login = f'{_LOGIN_MODULE} required username="{options["sasl.username"]}" password="{options["sasl.password"]}";'
    others = {name: value for name, value in options.items() if name not in ("sasl.username", "sasl.password")}
    return {**others, "sasl.jaas.config": login}


def server_properties(home: Home, ports: Ports, credentials: Credentials, advertised: Ports | None = None) -> str:
    """One node, so every internal topic has one replica. No topic is created automatically.

    Each listener has one user. The broker logs in by it, too, as a client of its own listeners.
    """
    user, password = KAFKA_USER, credentials.kafka_password
    login = f'{_LOGIN_MODULE} required username="{user}" password="{password}" user_{user}="{password}";'
    settings = {
        "process.roles": "broker,controller",
        "node.id": 1,
        "controller.quorum.voters": f"1@{HOST}:{ports.kafka_controller}",
        "controller.listener.names": "CONTROLLER",
        "listeners": f"CLIENT://{HOST}:{ports.kafka},CONTROLLER://{HOST}:{ports.kafka_controller}",
        "advertised.listeners": f"CLIENT://{bootstrap_servers(advertised or ports)}",
        "inter.broker.listener.name": "CLIENT",
        "listener.security.protocol.map": "CLIENT:SASL_PLAINTEXT,CONTROLLER:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "sasl.mechanism.controller.protocol": "PLAIN",
        "listener.name.client.plain.sasl.jaas.config": login,
        "listener.name.controller.plain.sasl.jaas.config": login,
        "log.dirs": home.local / "kafka" / "data",
        "auto.create.topics.enable": "false",
        "offsets.topic.replication.factor": 1,
        "offsets.topic.num.partitions": 4,
        "transaction.state.log.replication.factor": 1,
        "transaction.state.log.min.isr": 1,
        "transaction.state.log.num.partitions": 4,
        "share.coordinator.state.topic.replication.factor": 1,
        "share.coordinator.state.topic.min.isr": 1,
        "group.initial.rebalance.delay.ms": 0,
        # The controller lets a killed broker in again when its old session has expired; by default after 9 s.
        "broker.session.timeout.ms": 4000,
        "broker.heartbeat.interval.ms": 1000,
    }
    return _to_properties(settings)


def _to_properties(settings: Mapping[str, object]) -> str:
    return "".join(f"{key}={value}\n" for key, value in settings.items())


def _prepare(home: Home, ports: Ports, credentials: Credentials, advertised: Ports | None) -> Launch:
    folder = private_folder(home.local / "kafka")
    properties, log_properties = folder / "server.properties", folder / "log4j2.properties"
    write_private(properties, server_properties(home, ports, credentials, advertised))
    login = java_options(client_options(advertised or ports, credentials))
    write_private(home.kafka_login_file, _to_properties(login))
    write_private(log_properties, LOG_PROPERTIES)
    java = find_java()
    class_path = os.pathsep.join(map(str, fetch_jars(home, "kafka")))
    options = (*_HEAP, f"-Dlog4j2.configurationFile={log_properties}", "-cp", class_path)

    def launch(*arguments: str) -> Launch:
        return Launch(argv=(str(java), *options, *arguments), folder=folder, environment=base_environment())

    if not (folder / "data" / "meta.properties").exists():
        cluster_id = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        tool = ("kafka.tools.StorageTool", "format", f"--cluster-id={cluster_id}", "--config", str(properties))
        processes.run(home, "kafka", launch(*tool), deadline_seconds=60)
    return launch("kafka.Kafka", str(properties))


def _answers(options: Mapping[str, str]) -> bool:
    client = AdminClient({**options, "log_level": 0})
    try:
        return bool(client.list_topics(timeout=1.0).brokers)
    except KafkaException:
        return False
