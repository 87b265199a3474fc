"""Where the tasks of Spark reach the process of a step, to send it rows, and what its session is called."""

from dataclasses import dataclass


def name_session(batch_id: int) -> str:
    """Return what the database calls the session in which a batch streams, so that a later attempt can end it."""
    return f"batchledger stream of batch {batch_id}"


@dataclass(frozen=True, slots=True)
class StreamAddress:
    """A name or an address of this machine, and the first and the last port that may be listened on; 0 is any free one.

    What is sent to another machine is encrypted.
    """

    host: str = "127.0.0.1"
    ports: tuple[int, int] = (0, 0)

    @property
    def is_loopback(self) -> bool:
        """Whether nothing leaves this machine."""
        return self.host == "127.0.0.1"
