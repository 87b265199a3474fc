"""Cuts the connections of one stream between Spark's tasks and the step, after a number of bytes of a seed's choice."""

import socket
from collections.abc import Callable
from typing import Any

from typing_extensions import override

from batchledger.model.stream_address import StreamAddress
from batchledger.sinks.streaming import stream
from batchledger.sinks.streaming.door import Door


class _Cut(socket.socket):
    """A connection of which only so many bytes arrive; then it is gone, for both sides."""

    left: int
    cuts: list[int]

    @override
    def recv_into(self, buffer: Any, nbytes: int = 0, flags: int = 0) -> int:
        if self.left <= 0:
            self.cuts.append(self.left)
            self.shutdown(socket.SHUT_RDWR)
            raise ConnectionResetError("the connection was cut")
        received = super().recv_into(memoryview(buffer)[: self.left], 0, flags)
        self.left -= received
        return received


def cut_streams(after: int | None) -> list[int]:
    """Let the next stream of this process be cut after so many bytes of each task, or none. Return what was cut.

    Others go their way: of a pipeline that has given up two streams of ten, the next rows are staged.
    """
    cuts: list[int] = []

    class CutDoor(Door):
        def __init__(self, take: Callable[[memoryview], None], address: StreamAddress) -> None:
            stream.Door = Door  # type: ignore[attr-defined]
            super().__init__(take, address)

        @override
        def _serve(self, connection: socket.socket) -> None:
            cut = _Cut(fileno=connection.detach())
            cut.left, cut.cuts = after or 0, cuts
            super()._serve(cut)

    if after is not None:
        stream.Door = CutDoor  # type: ignore[attr-defined]
    return cuts
