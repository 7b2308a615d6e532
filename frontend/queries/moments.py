"""What all who look at the same moment share: whoever comes first reads it, and who comes later gets the same."""

from collections.abc import Callable, Sequence
from hashlib import blake2b
from typing import Final, TypeVar

from django.core.cache import cache
from redis.exceptions import RedisError

from controlplane.jobs.models import Job
from controlplane.runtime import names
from controlplane.runtime.redis import shared
from controlplane.telemetry.models import Cursor

KEPT_S: Final = 10
"""Where nothing moves it is read again all the same: a job that says nothing makes no samples per second."""

T = TypeVar("T")


def moment_of(jobs: Sequence[Job]) -> tuple[object, ...]:
    """What is another with everything that streams bring of these jobs. Reads two indexed rows of each."""
    copied = Cursor.objects.filter(job__in=[job.pk for job in jobs], stream__in=("events", "commands"))
    cursors = copied.order_by("job", "stream").values_list("job", "stream", "incarnation", "position")
    return [(job.pk, job.state, job.iteration, str(job.started_at)) for job in jobs], *cursors


def key_of(kind: str, *parts: object) -> str:
    """The key of what these parts determine: ``KIND-DIGEST``."""
    return f"{kind}-{blake2b(repr(parts).encode(), digest_size=12).hexdigest()}"


def of_job(what: str, job: Job, read: Callable[[Job], T]) -> T:
    """What ``read`` gives of the job as it is now."""
    return _kept(key_of("moment", what, moment_of([job])), lambda: read(job))


def of_cluster(what: str, read: Callable[[], T]) -> T:
    """What ``read`` gives, anew for each tick that pages hear; each time where none can be heard."""
    try:
        tick = shared().get(names.PAGES_SEQUENCE)
    except (RedisError, RuntimeError):
        return read()
    return _kept(key_of("moment", what, tick), read)


def _kept(key: str, read: Callable[[], T]) -> T:
    found: T | None = cache.get(key)
    if found is None:
        found = read()
        cache.set(key, found, KEPT_S)
    return found
