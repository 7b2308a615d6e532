"""Caches page reads, so that all viewers of a tick share one read."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from hashlib import blake2b
from threading import Lock, RLock
from typing import Any, Final, TypeVar
from weakref import WeakValueDictionary

from django.core.cache import cache
from django.db.models import Count, Max, OuterRef, Subquery
from redis.exceptions import RedisError

from controlplane.jobs.models import Job
from controlplane.runtime import names
from controlplane.runtime.redis import shared
from controlplane.telemetry.models import Cursor
from frontend.models import JobNote

KEPT_S: Final = 10
"""Seconds after which values expire even without changes: the throughput of a silent job becomes 0."""

WAIT_S: Final = 2.0
"""The longest wait for another reader of the same value."""

NOTES: Final = 1_000
"""Upper bound of the notes of a job, used to combine their newest id and their number in one value."""

T = TypeVar("T")


def state_key(jobs: Sequence[Job]) -> tuple[object, ...]:
    """A value that changes whenever ingest stores data of these jobs or users edit their notes. One query."""
    copied = Cursor.objects.filter(job__in=[job.pk for job in jobs], stream__in=("events", "commands"))
    notes = JobNote.objects.filter(job=OuterRef("job")).order_by().values("job")
    noted = Subquery(notes.annotate(version=Max("id") * NOTES + Count("id")).values("version"))
    found = copied.annotate(noted=noted).order_by("job", "stream")
    cursors = found.values_list("job", "stream", "incarnation", "position", "noted")
    return [(job.pk, job.state, job.iteration, str(job.started_at)) for job in jobs], *cursors


def key_of(kind: str, *parts: object) -> str:
    """The cache key for these parts: ``KIND-DIGEST``."""
    return f"{kind}-{blake2b(repr(parts).encode(), digest_size=12).hexdigest()}"


def of_job(what: str, job: Job, read: Callable[[Job], T]) -> T:
    """The result of ``read`` for the job, cached until the job changes."""
    return kept(key_of("cached", what, state_key([job])), lambda: read(job))


def of_cluster(what: str, read: Callable[[], T]) -> T:
    """The result of ``read``, cached until the next tick; not cached while Redis is unreachable."""
    try:
        tick = shared().get(names.PAGES_SEQUENCE)
    except (RedisError, RuntimeError):
        return read()
    return kept(key_of("cached", what, tick), read)


def latest_of_job(what: str, job: Job, read: Callable[[Job], T]) -> T:
    """As ``of_job``, for large values: only the latest is kept, in place of the one before."""
    key = key_of("latest", what, job.pk)
    with _one_reader(key):
        state = state_key([job])  # of those who wait, none reads what the first has read in the present state
        found: tuple[object, T] | None = cache.get(key)
        if found is None or found[0] != state:
            found = (state, read(job))
            cache.set(key, found, KEPT_S)
    return found[1]


def kept(key: str, read: Callable[[], T], seconds: int = KEPT_S) -> T:
    """The cached value of this key, read if there is none; readers that come meanwhile wait for it."""
    found: tuple[T] | None = cache.get(key)
    if found is None:
        with _one_reader(key):
            found = cache.get(key)
            if found is None:
                found = (read(),)
                cache.set(key, found, seconds)
    return found[0]


_LOCKS: Final[WeakValueDictionary[str, Any]] = WeakValueDictionary()
_GUARD: Final = Lock()


@contextmanager
def _one_reader(key: str) -> Iterator[None]:
    """One thread of this process at a time, since all viewers request the same values at the same tick. A thread that
    has waited for ``WAIT_S`` reads as well: the first may be stuck, or fail.
    """
    with _GUARD:
        lock = _LOCKS.setdefault(key, RLock())
    is_alone = lock.acquire(timeout=WAIT_S)
    try:
        yield
    finally:
        if is_alone:
            lock.release()
