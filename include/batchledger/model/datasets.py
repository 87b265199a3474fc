"""What a table or a topic is called outside of Batchledger: by OpenLineage's naming, and as an asset of Airflow.

OpenLineage's specification says how a dataset is named (https://openlineage.io/docs/spec/naming), and Airflow's
providers how the URI of an asset is written. Both are made here of the same values, so one is known by the other. No
name holds a user, a password or a query. No I/O here.
"""

from dataclasses import dataclass
from urllib.parse import quote, unquote, urlsplit

POSTGRES_PORT = 5432
KAFKA_PORT = 9092
_LOCAL_HOST = "localhost"
_SAME_STORE = {"s3a": "s3", "s3n": "s3"}
"""Other names of an object store, which Hadoop's clients use."""
_OBJECT_STORES = frozenset({"s3", "gs", "abfs", "abfss", "wasb", "wasbs"})
_CONTAINER_STORES = frozenset({"abfs", "abfss", "wasb", "wasbs"})
"""In their addresses the container stands before the ``@``, not a user."""


@dataclass(frozen=True, slots=True)
class Dataset:
    """A table or a topic: ``namespace`` and ``name`` in OpenLineage, ``uri`` as an asset of Airflow."""

    namespace: str
    name: str
    uri: str


def split_table(name: str) -> tuple[str, str]:
    """Return schema and name of a table of PostgreSQL. A bare name lives in ``public``."""
    schema, _, table = name.rpartition(".")
    return schema or "public", table


def name_table(hosts: str, ports: str, database: str, table: tuple[str, str]) -> Dataset:
    """Return the names of a table of PostgreSQL; ``table`` is its schema and its name.

    ``hosts`` and ``ports`` are lists with commas, as libpq takes them: the first server counts. A server that is
    reached through a socket is ``localhost``.
    """
    host = hosts.partition(",")[0]
    place = _bracket(_LOCAL_HOST if not host or host.startswith("/") else host)
    namespace = f"postgres://{place}:{ports.partition(',')[0] or POSTGRES_PORT}"
    path = "/".join(quote(each, safe="") for each in (database, *table))
    return Dataset(namespace, ".".join((database, *table)), f"{namespace}/{path}")


def name_topic(servers: str, topic: str) -> Dataset:
    """Return the names of a topic; the first of the bootstrap ``servers`` stands for the cluster, as it is written."""
    first = servers.partition(",")[0].strip().rpartition("://")[2]
    parts = urlsplit(f"//{first}")
    namespace = f"kafka://{_bracket(parts.hostname or _LOCAL_HOST)}:{parts.port or KAFKA_PORT}"
    return Dataset(namespace, topic, f"{namespace}/{topic}")


def name_location(location: str) -> Dataset:
    """Return the names of a table whose files lie at ``location``: a URI, or the path of a folder."""
    location = location.rstrip("/")
    if location.startswith("/"):
        return Dataset("file", location, f"file://{quote(location)}")
    parts = urlsplit(location)
    if parts.scheme in ("", "file"):
        return Dataset("file", unquote(parts.path), f"file://{parts.path}")
    scheme = _SAME_STORE.get(parts.scheme, parts.scheme)
    host = parts.netloc if scheme in _CONTAINER_STORES else parts.netloc.rpartition("@")[2]
    namespace = f"{scheme}://{host}"
    name = parts.path.lstrip("/") if scheme in _OBJECT_STORES else parts.path
    return Dataset(namespace, name, f"{namespace}{parts.path}")


def _bracket(host: str) -> str:
    """Return the host as a URI has it: an address of IPv6 stands in brackets."""
    return f"[{host}]" if ":" in host else host
