"""Isolates jobs whose stored data cannot be read, so that lists and totals of the others still work."""

import logging
from collections.abc import Callable
from typing import TypeVar

from redis.exceptions import RedisError

from controlplane.jobs.models import Job
from controlplane.jobs.stored_specs import UnreadableSpec
from controlplane.protocol.cleaning import clean_text
from controlplane.runtime.ingest_health import is_out_of_reach

T = TypeVar("T")

logger = logging.getLogger(__name__)


def legible(job: Job, read: Callable[[Job], T]) -> tuple[T | None, str]:
    """The result of ``read``, or None and the reason. Errors that are not caused by the job's data are raised."""
    try:
        return read(job), ""
    except UnreadableSpec as error:
        return None, str(error)
    except Exception as error:
        if is_out_of_reach(error) or isinstance(error, RedisError):
            raise
        logger.exception("stored data of %s cannot be read; pages omit it", job)
        why = clean_text(f"{type(error).__name__}: {' '.join(str(error).split())}", 300)
        return None, f"stored data of {job} cannot be read ({why}); see the log of the web process"
