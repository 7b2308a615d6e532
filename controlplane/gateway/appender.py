"""Appends the messages of a job's sockets to its log: one script call for all that arrived during the last call.

A call waits until the event loop has handled its input, so that one batch of a relay becomes one call, and a little
longer in a job with many processes.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Any, Final

import structlog
from redis.exceptions import NoScriptError, RedisError

from controlplane.core.events import Event
from controlplane.runtime import log, tracing
from controlplane.runtime.faults import reach
from controlplane.runtime.wire import Caller

MOST_AT_ONCE: Final = 256
APART_S: Final = 0.002
"""Minimum time between the calls of a job with many processes: their messages share calls, commits and wake-ups."""

MOST_WAITING: Final = 2_000
"""Events of one job that may be queued; above this its sockets are not read."""

logger = structlog.get_logger(__name__)


class Appender:
    """Appends in the order of ``append`` calls. Nothing is retried: senders keep messages until they are durable.

    ``on_failure`` is called when events were not, or possibly not, appended (True: the job is over, False: Redis failed
    or lost the log). Callbacks instead of tasks: one task per event would double the cost.
    """

    def __init__(self, caller: Caller, job: int, on_failure: Callable[[bool], None]) -> None:
        self._caller, self._job, self._on_failure = caller, job, on_failure
        self._waiting: list[bytes] = []
        self._sent: list[bytes] = []
        self._call: asyncio.Future[Any] | None = None
        self._is_due = False
        """Whether the next call is about to be made."""
        self._background: set[asyncio.Future[Any]] = set()
        self._capacity = asyncio.Event()
        self._capacity.set()
        self._arrivals = tracing.arrivals(job)
        self.length = 0
        """Entries of the job's log, as of the last append."""
        self.gathers = False
        """Whether calls are at least ``APART_S`` apart."""
        self._sent_s = float("-inf")

    def append(self, event: Event) -> None:
        """Queue the event for the next call."""
        reach("gateway.received")
        self._waiting.append(log.encode_event(event))
        if self._arrivals is not None:
            self._arrivals.add(event)
        if len(self._waiting) > MOST_WAITING:
            self._capacity.clear()
        if self._call is None and not self._is_due:
            self._plan()

    async def wait_for_capacity(self) -> None:
        """Wait until the queue accepts more events."""
        await self._capacity.wait()

    async def flushed(self) -> None:
        """Wait until every queued event is appended or has failed."""
        while self._call is not None or self._is_due:
            if self._call is not None:
                await asyncio.wait([self._call])
                await asyncio.sleep(0)  # its callback may send what arrived meanwhile
            else:
                await asyncio.sleep(APART_S)

    def _plan(self) -> None:
        """Make the next call once the loop has handled its input, and calls are far enough apart."""
        self._is_due = True
        loop = asyncio.get_running_loop()
        early_s = self._sent_s + APART_S - time.monotonic() if self.gathers else 0.0
        if early_s > 0.0:
            loop.call_later(early_s, self._send_next)
        else:
            loop.call_soon(self._send_next)

    def _send_next(self) -> None:
        self._is_due = False
        self._sent_s = time.monotonic()
        self._sent, self._waiting = self._waiting[:MOST_AT_ONCE], self._waiting[MOST_AT_ONCE:]
        self._watch(log.begin_append(self._caller, self._job, self._sent))

    def _watch(self, call: asyncio.Future[Any]) -> None:
        self._call = call
        call.add_done_callback(self._answered)

    def _answered(self, call: asyncio.Future[Any]) -> None:
        self._call = None
        try:
            reply = call.result()
            flipped = log.flipped(self._job, reply)
        except NoScriptError:
            self._watch(log.begin_append(self._caller, self._job, self._sent, with_source=True))
            return
        except log.LogMissing as error:
            logger.warning("append refused", job=self._job, why=str(error))
            self._fail(over=False)
            return
        except log.LogClosed:
            self._fail(over=True)
            return
        except (RedisError, OSError) as error:
            logger.warning("append failed", job=self._job, why=str(error))
            self._fail(over=False)
            return
        self.length = reply[2]
        if self._arrivals is not None:
            self._arrivals.appended(len(self._sent))
        reach("gateway.appended")
        self._capacity.set()
        if flipped:
            self._enqueue()
        if self._waiting and self.gathers:
            self._plan()
        elif self._waiting:
            self._send_next()

    def _enqueue(self) -> None:
        task = asyncio.ensure_future(log.aenqueue(self._job))
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    def _fail(self, *, over: bool) -> None:
        self._waiting.clear()
        if self._arrivals is not None:
            self._arrivals.clear()
        self._capacity.set()
        self._on_failure(over)
