"""Measures a server's work since its last report: bytes in each direction, and the time in
which it handled requests.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """The values of one reporting interval. ``busy_s`` counts overlapping requests once, so it
    is at most the interval.
    """

    bytes_in: int
    bytes_out: int
    busy_s: float


class Meter:
    """Counts for all connections of a server. As a context manager it encloses the handling of a request."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._lock = threading.Lock()
        self._bytes_in = self._bytes_out = 0
        self._busy_s = 0.0
        self._active = 0
        self._since = 0.0

    def count(self, *, bytes_in: int = 0, bytes_out: int = 0) -> None:
        """Count payload bytes that were received or sent."""
        with self._lock:
            self._bytes_in += bytes_in
            self._bytes_out += bytes_out

    def __enter__(self) -> None:
        """Start of a request's handling; must not be held while waiting for others."""
        self._change(1)

    def __exit__(self, *_: object) -> None:
        self._change(-1)

    def take(self) -> Reading:
        """The values since the last call."""
        with self._lock:
            self._settle()
            reading = Reading(bytes_in=self._bytes_in, bytes_out=self._bytes_out, busy_s=self._busy_s)
            self._bytes_in = self._bytes_out = 0
            self._busy_s = 0.0
            return reading

    def _change(self, by: int) -> None:
        with self._lock:
            self._settle()
            self._active += by

    def _settle(self) -> None:
        now = self._now()
        if self._active:
            self._busy_s += now - self._since
        self._since = now
