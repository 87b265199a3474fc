"""A topic on a Kafka cluster that rows go to: a foreign target, asked afterwards what became of a batch.

Needs, for the sink's user: WRITE, DESCRIBE and READ on the topic (CREATE to make it, DESCRIBE_CONFIGS to know its
largest record and its cleanup), WRITE and DESCRIBE on transactional id ``batchledger.<pipeline>``, READ and DESCRIBE on
groups ``batchledger.<pipeline>.sink`` and ``.replay``, and READ on the source topics if they are on this cluster.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic
from tenacity import retry, retry_if_exception, stop_after_delay, wait_fixed

from batchledger.model.batch import Attempt
from batchledger.model.errors import BatchledgerError, TargetRefusedError
from batchledger.model.offsets import OffsetRange, TopicPartition
from batchledger.sinks.topic.commits import advise, find_foreign, group_of, read_metadata
from batchledger.sinks.topic.counts import OutputCounts, count_output
from batchledger.sinks.topic.errors import explaining, is_passing
from batchledger.sinks.topic.features import read_features
from batchledger.sinks.topic.log import TopicFacts, describe_topics
from batchledger.sinks.topic.transaction import OutputWriter
from batchledger.source.kafka.clients import REQUEST_TIMEOUT_SECONDS, client_options
from batchledger.source.kafka.requests import LATEST, Isolation, kafka_call, list_offsets, open_admin, wait

NEEDED_VERSION = 2
_BROKERS_DEFAULT = -1
NOTHING_CHANGED = "Nothing was changed."


@dataclass(frozen=True)
class KafkaOutputTopic(OutputWriter):
    """The topic of a pipeline, whose publications come one after the other: the ledger sees to that.

    Opens nothing when it is made. Nothing here is silent for more than 30 s. Raises ServiceUnavailableError when no
    broker answers, and TargetRefusedError for what a person has to change. ``accepts_older_transactions``: the cluster
    need not have the transactions of KIP-890.
    """

    accepts_older_transactions: bool = False

    def require_usable(self, attempt: Attempt) -> str:
        """Make the topic exist, and return what tells it from another of the same name: the ids of cluster and topic.

        Creates nothing else, and only if nothing is refused. Raises TargetRefusedError when the topic cannot take the
        batch, with the reason and what to do: also when a pipeline of another ledger has written to it.
        """
        if not self.accepts_older_transactions:
            self._require_transactions(attempt)
        sources = sorted({each.partition.topic for each in attempt.batch.ranges})
        with explaining(self.options, self.name, attempt, "looking at topic and group", consequence=NOTHING_CHANGED):
            admin = open_admin(client_options(self.options))
            cluster_id = wait(admin.describe_cluster(request_timeout=REQUEST_TIMEOUT_SECONDS)).cluster_id
            known = describe_topics(self.options, sorted({*sources, self.name}))
            self._require_own_group(admin, attempt)
            facts = known.get(self.name) or self._create(admin, attempt, known)
        return f"{cluster_id} {facts.topic_id}"

    def identify(self) -> str | None:
        """Return what ``require_usable`` does; None when there is no such topic."""
        with kafka_call(f"look for topic {self.name}", self.options):
            admin = open_admin(client_options(self.options))
            cluster_id = wait(admin.describe_cluster(request_timeout=REQUEST_TIMEOUT_SECONDS)).cluster_id
            facts = describe_topics(self.options, [self.name]).get(self.name)
        return None if facts is None else f"{cluster_id} {facts.topic_id}"

    def count(self, within: Sequence[OffsetRange] | None = None, patience_seconds: float = 0.0) -> OutputCounts:
        """See ``count_output``."""
        return count_output(self.options, self.name, within, patience_seconds)

    def _refusal(self, attempt: Attempt, why: str, advice: str) -> BatchledgerError:
        return TargetRefusedError(
            f"Topic {self.name} on {self.options['bootstrap.servers']} cannot take {attempt.batch.label}.",
            why=why,
            advice=advice,
            batch_id=attempt.batch.batch_id,
            subject=self.name,
        )

    def _require_transactions(self, attempt: Attempt) -> None:
        """Require the transactions of KIP-890: with older ones a late request can open one that no producer ends."""
        features = read_features(self.options)
        if features is not None and features.get("transaction.version", 0) >= NEEDED_VERSION:
            return
        found = "is unknown" if features is None else f"is {features.get('transaction.version', 0)}"
        raise self._refusal(
            attempt,
            f"transaction.version of the cluster, expected {NEEDED_VERSION} or more, {found}: a transaction may stay "
            "open for ever and hold back every reader (KIP-890).",
            f"Upgrade the feature (kafka-features.sh upgrade --feature transaction.version={NEEDED_VERSION}), or set "
            "sink.accept_older_transactions: true.",
        )

    def _require_own_group(self, admin: AdminClient, attempt: Attempt) -> None:
        group = group_of(attempt.batch)
        members = _count_members(admin, group)
        if members:
            raise self._refusal(
                attempt,
                f"Group {group}, in which the pipeline commits its offsets, has {members} members.",
                "End these consumers.",
            )
        # Pending offsets belong to an earlier attempt; the next transaction ends it.
        metadata = read_metadata(self.options, self.name, attempt.batch, Isolation.UNCOMMITTED)
        foreign = find_foreign(metadata, attempt.batch, self.knows)
        if foreign:
            found = ", ".join(f"{each}: {text or 'nothing'!r}" for each, text in sorted(foreign.items()))
            raise self._refusal(
                attempt,
                f"Another client has committed in group {group}, in which the pipeline commits its offsets. Its "
                f"metadata: {found}.",
                f"{advise(foreign, attempt.batch)}.\nThen delete the group.",
            )

    def _create(self, admin: AdminClient, attempt: Attempt, known: Mapping[str, TopicFacts]) -> TopicFacts:
        """Create the topic with as many partitions as the widest source topic, and the broker's number of replicas."""
        partitions = 1 + max((each.partition.partition for each in attempt.batch.ranges), default=0)
        partitions = max([partitions, *(facts.partitions for facts in known.values())])
        new = NewTopic(self.name, num_partitions=partitions, replication_factor=_BROKERS_DEFAULT)
        try:
            wait(admin.create_topics([new], request_timeout=REQUEST_TIMEOUT_SECONDS)[self.name])
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise self._refusal(
                    attempt,
                    f"The topic does not exist, and could not be created: {error.args[0].str().rstrip('.')}.",
                    "Create it, or let the sink's user do so (CREATE on it).",
                ) from error
        with kafka_call(f"create topic {self.name}", self.options):
            # Answers once every partition has a leader; only then all brokers describe the topic.
            list_offsets(self.options, [TopicPartition(self.name, number) for number in range(partitions)], LATEST)
            return describe_topics(self.options, [self.name])[self.name]


# A cluster that has had no group yet makes room for groups when it is first asked about one.
@retry(
    retry=retry_if_exception(is_passing),
    stop=stop_after_delay(REQUEST_TIMEOUT_SECONDS),
    wait=wait_fixed(0.2),
    reraise=True,
)
def _count_members(admin: AdminClient, group: str) -> int:
    try:
        answer = admin.describe_consumer_groups([group], request_timeout=REQUEST_TIMEOUT_SECONDS)[group]
        return len(wait(answer).members)
    except KafkaException as error:
        if error.args[0].code() == KafkaError.GROUP_ID_NOT_FOUND:
            return 0
        raise
