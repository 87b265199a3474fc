"""Ends what a producer has left open: asks whether the client has given a transaction up, and aborts it."""

from logging import getLogger

from confluent_kafka import KafkaException, Producer
from tenacity import retry, retry_if_exception, stop_after_attempt

from batchledger.model.batch import Attempt
from batchledger.sinks.topic.errors import is_fenced, is_retriable

ABORT_SECONDS = 10.0
_ABORT_TRIES = 5

_log = getLogger(__name__)


def require_open(producer: Producer) -> None:
    """Raise the reason if the client has given the transaction up. Asks by a second begin, which changes nothing."""
    try:
        producer.begin_transaction()
    except KafkaException as error:
        if error.args[0].txn_requires_abort() or error.args[0].fatal():
            raise


def abort(producer: Producer, attempt: Attempt) -> bool:
    """Abort what is open, and return whether Kafka has done so.

    If the request does not reach Kafka, the transaction is not committed either: no client has asked for that. The
    client gives up what it has to send as it is asked, and then waits for the rest. A record that moves between two of
    its queues at that moment is given up when it is asked again.
    """
    try:
        _ask_for_abort(producer)
    except KafkaException as error:
        if not is_fenced(error.args[0]):
            _log.warning(
                "the transaction of %s, attempt %s, ends with its timeout, or with the next attempt: %s",
                attempt.batch.label,
                attempt.number,
                error.args[0].str(),
            )
        return False
    else:
        return True
    finally:
        producer.purge()


@retry(retry=retry_if_exception(is_retriable), stop=stop_after_attempt(_ABORT_TRIES), reraise=True)
def _ask_for_abort(producer: Producer) -> None:
    producer.abort_transaction(ABORT_SECONDS / _ABORT_TRIES)
