"""The teams that own the jobs in ticks. All pages share one database query at a time."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection
from typing import Final

import structlog

OWNERS_S: Final = 1.0
"""Timeout of the database query."""

KEPT_S: Final = 2.0
"""How long an answer is cached. A job that was transferred to a team stays visible to others for at most this long."""

Owners = Callable[[Collection[int]], Awaitable[dict[int, int]]]
"""The teams of those jobs that one owns."""

logger = structlog.get_logger(__name__)


class JobOwners:
    """Shares and briefly caches the answers; at most one query runs at a time."""

    def __init__(self, read: Owners) -> None:
        self._read = read
        self._known: dict[int, tuple[float, int | None]] = {}
        """By job: the time of the query, and the owner."""
        self._reading: asyncio.Task[str] | None = None

    async def of(self, jobs: Collection[int]) -> dict[int, int] | None:
        """The team of each job that has one; None if the database does not answer in time. It never raises."""
        deadline = time.monotonic() + OWNERS_S
        while missing := [job for job in jobs if not self._is_known(job)]:
            reading = self._reading
            if reading is None:
                reading = self._reading = asyncio.create_task(self._ask(missing))
            done, _ = await asyncio.wait({reading}, timeout=max(0.0, deadline - time.monotonic()))
            if not done or time.monotonic() >= deadline:
                _warn(f"no answer within {OWNERS_S:g} s")
                return None
            if failure := reading.result():
                _warn(failure)
                return None
        return {job: team for job in jobs if (team := self._known[job][1]) is not None}

    async def _ask(self, jobs: Collection[int]) -> str:
        """Query the owners; returns why that failed, or an empty string."""
        asked_s = time.monotonic()
        try:
            owners = await self._read(jobs)
        except Exception as error:
            return f"{error!r}"
        finally:
            self._reading = None
        self._known = {job: known for job, known in self._known.items() if self._is_known(job)}
        self._known |= {job: (asked_s, owners.get(job)) for job in jobs}
        return ""

    def _is_known(self, job: int) -> bool:
        known = self._known.get(job)
        return known is not None and time.monotonic() - known[0] < KEPT_S


def _warn(why: str) -> None:
    logger.warning("pages limited to teams get no tick: owners of jobs not known", why=why)
