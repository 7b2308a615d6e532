"""Appends what a job's sockets say to its log: one script call for all that came while the last one was under way."""

import asyncio
from collections.abc import Callable
from typing import Final

import structlog
from redis.exceptions import RedisError

from controlplane.core.events import Event
from controlplane.runtime import log
from controlplane.runtime.wire import Caller

MOST_AT_ONCE: Final = 256
MOST_WAITING: Final = 2_000
"""Events of one job that may wait; its senders are read no further until there is room."""

logger = structlog.get_logger(__name__)


class Appender:
    """Keeps the order in which it was given events. Nothing is repeated: senders keep what is not durable.

    ``on_failure`` is told that events were not, or perhaps not, appended (True: the job is over, False: Redis failed).
    """

    def __init__(self, caller: Caller, job: int, on_failure: Callable[[bool], None]) -> None:
        self._caller, self._job, self._on_failure = caller, job, on_failure
        self._waiting: list[bytes] = []
        self._task: asyncio.Task[None] | None = None
        self._room = asyncio.Event()
        self._room.set()

    def append(self, event: Event) -> None:
        """Append soon."""
        self._waiting.append(log.encode_event(event))
        if len(self._waiting) > MOST_WAITING:
            self._room.clear()
        if self._task is None:
            self._task = asyncio.create_task(self._drain())

    async def room(self) -> None:
        """Wait until it makes sense to give it more."""
        if not self._room.is_set():
            await self._room.wait()

    async def flushed(self) -> None:
        """Wait until everything that it was given is appended or has failed."""
        while self._task is not None:
            await asyncio.shield(self._task)

    async def _drain(self) -> None:
        try:
            while self._waiting:
                batch, self._waiting = self._waiting[:MOST_AT_ONCE], self._waiting[MOST_AT_ONCE:]
                await log.aappend_events(self._caller, self._job, batch)
                self._room.set()
        except log.LogClosed:
            self._fail(over=True)
        except (RedisError, OSError) as error:
            logger.warning("append failed", job=self._job, why=str(error))
            self._fail(over=False)
        finally:
            self._task = None

    def _fail(self, *, over: bool) -> None:
        self._waiting.clear()
        self._room.set()
        self._on_failure(over)
