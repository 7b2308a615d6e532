"""Converts termination signals into a flag that every wait checks.

An exception raised in a signal handler could occur between the start of a child and its registration, and leave the
child running. A flag cannot: waits check it while the state is consistent.
"""

import signal
import threading
from types import FrameType
from typing import Any, Self

from controlplane.runtime.embedded.errors import Interrupted

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interruption:
    """While entered, the signals set ``requested`` and do nothing else; before and after, they act as before."""

    def __init__(self) -> None:
        self.requested = threading.Event()
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._ask) for number in SIGNALS}
        return self

    def __exit__(self, *error: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _ask(self, number: int, frame: FrameType | None) -> None:
        self.requested.set()

    def pause(self, seconds: float) -> None:
        """Wait for ``seconds``.

        Raises:
            Interrupted: as soon as a signal to end arrives.
        """
        if self.requested.wait(seconds):
            raise Interrupted
