"""A job's progress by its log, as reports arrive, independently of ingest."""

import time
from collections.abc import Iterable
from contextlib import suppress
from typing import Final

import redis

from controlplane.core.events import Entry, WorkerMessageReceived
from controlplane.protocol.messages import IterationReport
from controlplane.runtime import log

AT_ONCE: Final = 1000
"""Entries that are read with one call."""

FLOWING_S: Final = 1.0
"""A job continues if it made progress within this time."""


class Progress:
    """When iterations of one job were first reported, since this object was created.

    In lockstep the first report of an iteration means that the previous one is complete. A rollback begins a new
    generation, in which iterations count as new again.

    Args:
        client: one with a separate connection.
    """

    def __init__(self, client: redis.Redis, job: int) -> None:
        self._client, self._job = client, job
        self._furthest = (-1, -1)
        """Generation and iteration."""
        self._after = f"{int(time.time() * 1000)}-0"

    def since_last_look(self) -> list[float]:
        """Times since the last call, on the monotonic clock and in order; empty while Redis does not answer."""
        times: list[float] = []
        epoch_s = time.time() - time.monotonic()
        with suppress(redis.RedisError):
            while entries := log.read_entries(self._client, self._job, after=self._after, count=AT_ONCE, block_s=0.0):
                times += [at_s - epoch_s for at_s in self._take(entries)]
                self._after = entries[-1].id
        return times

    def _take(self, entries: Iterable[Entry]) -> list[float]:
        times = []
        for entry in entries:
            event = entry.event
            if isinstance(event, WorkerMessageReceived) and isinstance(event.message, IterationReport):
                reached = (event.message.generation, event.message.iteration)
                if reached > self._furthest:
                    self._furthest = reached
                    times.append(entry.at_ms / 1000)
        return times


class Watch:
    """The longest time without progress since ``began``, in seconds of the caller's clock."""

    def __init__(self, began: float) -> None:
        self.last, self.longest = began, 0.0

    def see(self, *times: float) -> None:
        """Record progress at these times, in order."""
        for at in times:
            self.longest, self.last = max(self.longest, at - self.last), max(self.last, at)

    def longest_by(self, now: float) -> float | None:
        """``longest``, or None if there is no progress."""
        return self.longest if now - self.last < FLOWING_S else None
