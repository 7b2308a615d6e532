"""Which teams own the jobs that ticks name. However many pages ask, the database is asked one question at a time."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection
from typing import Final

import structlog

OWNERS_S: Final = 1.0
"""How long the database may take to say whose jobs have moved."""

KEPT_S: Final = 2.0
"""How long an answer holds: a job that was given to a team is named to others for no longer than that."""

Owners = Callable[[Collection[int]], Awaitable[dict[int, int]]]
"""The teams of those jobs that one owns."""

logger = structlog.get_logger(__name__)


class JobOwners:
    """Answers are shared and kept for a moment; while one is outstanding, nothing else is asked."""

    def __init__(self, read: Owners) -> None:
        self._read = read
        self._known: dict[int, tuple[float, int | None]] = {}
        """By job, when its owner was asked for, and the owner."""
        self._reading: asyncio.Task[str] | None = None

    async def of(self, jobs: Collection[int]) -> dict[int, int] | None:
        """The teams of those jobs that one owns; None if the database does not say in time. It never raises."""
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
        """Why there is no answer; empty: there is one."""
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
