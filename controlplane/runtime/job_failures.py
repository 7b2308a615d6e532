"""Isolates jobs in background loops: a step that fails for one job is logged and shown, and the loop continues."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import msgspec
import structlog
from redis.exceptions import OutOfMemoryError, ReadOnlyError, RedisError, ResponseError

from controlplane.protocol.cleaning import clean_text
from controlplane.runtime import names
from controlplane.runtime.ingest_health import is_out_of_reach
from controlplane.runtime.redis import Client, shared

SHOWN_S: Final = 3_600.0
"""A failure is shown for this long unless a later step of the job succeeds."""

_failed: set[tuple[str, int]] = set()
"""Failed steps of this process, cleared when the step succeeds."""

logger = structlog.get_logger(__name__)


@contextmanager
def isolated_step(loop: str, job: int, client: Client | None = None) -> Iterator[None]:
    """One step of a loop for one job. Only errors of Redis or the database end the loop."""
    try:
        yield
    except Exception as error:
        if _is_infrastructure(error):
            raise
        logger.exception("step failed for one job, continuing with the others", loop=loop, job=job)
        note(client or shared(), loop, job, error)
    else:
        if _failed and (loop, job) in _failed:
            forget(client or shared(), loop, job)


def note(client: Client, loop: str, job: int, error: Exception) -> None:
    """Record that the step failed for the job, so that pages show it."""
    _failed.add((loop, job))
    why = clean_text(f"{type(error).__name__}: {' '.join(str(error).split())}", 300)
    client.hset(names.TURNS_FAILED, _field(loop, job), msgspec.json.encode((time.time(), why)))


def forget(client: Client, loop: str, job: int) -> None:
    """Record that the step succeeded."""
    _failed.discard((loop, job))
    client.hdel(names.TURNS_FAILED, _field(loop, job))


def failed_steps(client: Client) -> str:
    """A warning that names loops, jobs, errors and the cure; empty while healthy."""
    found: dict[bytes, bytes] = client.execute_command("HGETALL", names.TURNS_FAILED)
    oldest = time.time() - SHOWN_S
    failures = []
    for field, value in sorted(found.items()):
        at, why = msgspec.json.decode(value)
        loop, _, job = field.decode().rpartition(":")
        if at > oldest:
            failures.append(f"job {job} is skipped in {loop} ({why})")
    if not failures:
        return ""
    more = f", and {len(failures) - 5} more" if len(failures) > 5 else ""
    return (
        f"{'; '.join(failures[:5])}{more}. Other jobs continue, and the step is retried each time; stop such a job if "
        "it does not recover, and check the log of the history service."
    )


def _is_infrastructure(error: Exception) -> bool:
    """Whether the error means that Redis or the database is unavailable, busy or full."""
    if isinstance(error, RedisError):
        return not isinstance(error, ResponseError) or isinstance(error, OutOfMemoryError | ReadOnlyError)
    return is_out_of_reach(error)


def _field(loop: str, job: int) -> str:
    return f"{loop}:{job}"
