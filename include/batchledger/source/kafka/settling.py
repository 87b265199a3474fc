"""What brokers answer for a moment about a partition that was just created, or whose leader is moving: ask again."""

from confluent_kafka import KafkaError

SETTLING_ERRORS = (
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.OFFSET_NOT_AVAILABLE,
    KafkaError.UNKNOWN_LEADER_EPOCH,
    KafkaError.FENCED_LEADER_EPOCH,
    # The client itself says so if it knows no leader of a partition: its admin, and its consumer.
    KafkaError._NOENT,
    KafkaError._UNKNOWN_PARTITION,
)
