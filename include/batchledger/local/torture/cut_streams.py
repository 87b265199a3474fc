"""Cuts connections between Spark's tasks and the step, after a number of bytes that a seed has chosen."""

import socket
from typing import Any

from typing_extensions import override

from batchledger.sinks.table import streaming
from batchledger.sinks.table.door import Door


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
    """Let all streams of this process be cut after so many bytes of each task; None for never. Return what was cut."""
    cuts: list[int] = []

    class CutDoor(Door):
        @override
        def _serve(self, connection: socket.socket) -> None:
            cut = _Cut(fileno=connection.detach())
            cut.left, cut.cuts = after or 0, cuts
            super()._serve(cut)

    if after is not None:
        streaming.Door = CutDoor  # type: ignore[attr-defined]
    return cuts
