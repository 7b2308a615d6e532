"""How old what a page shows is: read at most every two seconds for all who look, whatever they look at."""

from collections.abc import Iterable
from datetime import datetime
from typing import Final

from django.core.cache import cache
from redis.exceptions import RedisError

from controlplane.runtime.freshness import Copying, copying
from controlplane.runtime.redis import shared

KEPT_S: Final = 2


def now() -> dict[int, Copying]:
    """How far the database has each live job; empty where Redis does not answer, which pages say otherwise."""
    found: dict[int, Copying] | None = cache.get("freshness")
    if found is None:
        try:
            found = copying(shared())
        except (RedisError, RuntimeError):
            found = {}
        cache.set("freshness", found, KEPT_S)
    return found


def as_of(job: int) -> datetime | None:
    """When what the database has of the job was so, where that is no longer so; None: it has all."""
    found = now().get(job)
    return found.data_at if found is not None and found.late else None


def oldest(jobs: Iterable[int] | None = None) -> Copying | None:
    """The job of these, or of all that live, whose entries wait longest; None where there is none."""
    found = now()
    chosen = found.values() if jobs is None else [found[job] for job in jobs if job in found]
    return max(chosen, key=lambda each: each.waits_s, default=None)
