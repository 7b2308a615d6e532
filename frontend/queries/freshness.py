"""Reads the age of a page's data, at most every two seconds for all viewers."""

from collections.abc import Iterable
from datetime import datetime
from typing import Final

from django.core.cache import cache
from redis.exceptions import RedisError

from controlplane.runtime.freshness import Copying, copying
from controlplane.runtime.redis import shared

KEPT_S: Final = 2


def now() -> dict[int, Copying]:
    """Ingest progress of each live job; empty if Redis is unreachable, which pages report separately."""
    found: dict[int, Copying] | None = cache.get("freshness")
    if found is None:
        try:
            found = copying(shared())
        except (RedisError, RuntimeError):
            found = {}
        cache.set("freshness", found, KEPT_S)
    return found


def as_of(job: int) -> datetime | None:
    """The time up to which the database has the job's data; None: it is up to date."""
    found = now().get(job)
    return found.data_at if found is not None and found.late else None


def oldest(jobs: Iterable[int] | None = None) -> Copying | None:
    """The one of these jobs, or of all live jobs, whose entries wait longest; None if there is none."""
    found = now()
    chosen = found.values() if jobs is None else [found[job] for job in jobs if job in found]
    return max(chosen, key=lambda each: each.waits_s, default=None)
