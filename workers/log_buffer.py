"""Buffers log lines for the control plane: bounded, with the lowest priority."""

import threading
from collections import deque
from collections.abc import Iterable
from typing import Final

from controlplane.protocol.messages import Line, LogLines, ProcessName

MOST: Final = 2_000
"""Maximum number of buffered lines; above it the oldest are dropped and counted."""

AT_ONCE: Final = 100
FRAMES: Final = 10
"""Maximum number of messages of ``AT_ONCE`` lines per second."""


class LogBuffer:
    """The lines of all processes of one agent. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: deque[tuple[ProcessName, Line]] = deque()
        self._dropped: dict[ProcessName, int] = {}

    def add(self, process: ProcessName, lines: Iterable[Line]) -> None:
        """Queue lines."""
        with self._lock:
            self._waiting.extend((process, line) for line in lines)
            while len(self._waiting) > MOST:
                lost, _ = self._waiting.popleft()
                self._dropped[lost] = self._dropped.get(lost, 0) + 1

    def take(self) -> list[LogLines]:
        """The messages to send now."""
        with self._lock:
            return [message for _ in range(FRAMES) if (message := self._next()) is not None]

    def _next(self) -> LogLines | None:
        """The next lines of one process."""
        if not self._waiting:
            return None
        process = self._waiting[0][0]
        lines: list[Line] = []
        while self._waiting and self._waiting[0][0] == process and len(lines) < AT_ONCE:
            lines.append(self._waiting.popleft()[1])
        return LogLines(process=process, lines=lines, dropped=self._dropped.pop(process, 0))
