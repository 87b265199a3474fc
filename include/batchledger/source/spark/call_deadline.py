"""A deadline for every call to a Spark Connect server; Spark's own client would wait for an answer for ever.

It bounds a call, not a job. A job is executed reattachably: the server ends each response stream after at most
``spark.connect.execute.reattachable.senderMaxStreamDuration`` (two minutes, unless configured otherwise), and the
client then attaches again by another call, which has a deadline of its own. A stream that is older than the deadline
comes from a server that has stopped working, or from one that was configured to keep streams for longer.

HTTP/2 keepalive would not do instead: a server whose threads are deadlocked still answers pings, and one in Java ends
connections that send them more often than every five minutes.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import grpc
from pyspark.errors.exceptions.connect import SparkConnectGrpcException

# The server's two minutes and half as much again.
CALL_TIMEOUT_SECONDS = 180.0


@dataclass(frozen=True)
class CallDeadline(
    grpc.UnaryUnaryClientInterceptor,  # type: ignore[misc]
    grpc.UnaryStreamClientInterceptor,  # type: ignore[misc]
    grpc.StreamUnaryClientInterceptor,  # type: ignore[misc]
):
    """Lets every call end with DEADLINE_EXCEEDED, which the client does not retry, after ``seconds``."""

    seconds: float

    def _call(self, continuation: Callable[[Any, Any], Any], details: Any, request: Any) -> Any:
        return continuation(details._replace(timeout=self.seconds), request)

    intercept_unary_unary = intercept_unary_stream = intercept_stream_unary = _call


def explain_deadline(error: BaseException) -> str | None:
    """Return why a call may have met its deadline, in one line; None for every other error."""
    code = error.getGrpcStatusCode() if isinstance(error, SparkConnectGrpcException) else None
    code = error.code() if isinstance(error, grpc.Call) else code
    if code is not grpc.StatusCode.DEADLINE_EXCEEDED:
        return None
    return (
        "the server did not answer a call in time (DEADLINE_EXCEEDED). It is paused, overloaded or deadlocked, or its "
        "spark.connect.execute.reattachable.senderMaxStreamDuration is longer than two minutes"
    )
