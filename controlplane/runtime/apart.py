"""Turns of loops over jobs: what goes wrong in one job's turn is logged and shown, and breaks the loop for nobody."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import msgspec
import structlog
from redis.exceptions import OutOfMemoryError, ReadOnlyError, RedisError, ResponseError

from controlplane.protocol.cleaning import clean_text
from controlplane.runtime import names
from controlplane.runtime.redis import Client, shared
from controlplane.runtime.troubles import is_out_of_reach

SHOWN_S: Final = 3_600.0
"""A turn that failed and was never taken again (its job is gone, say) is shown for so long."""

_failed: set[tuple[str, int]] = set()
"""The turns that failed last in this process: those that come to be well are shown no more."""

logger = structlog.get_logger(__name__)


@contextmanager
def apart(loop: str, job: int, client: Client | None = None) -> Iterator[None]:
    """One job's turn in a loop. Only what is no job's fault (no Redis, no database) ends the loop."""
    try:
        yield
    except Exception as error:
        if _is_everybodys(error):
            raise
        logger.exception("a job's turn failed, the other jobs' go on", loop=loop, job=job)
        note(client or shared(), loop, job, error)
    else:
        if _failed and (loop, job) in _failed:
            forget(client or shared(), loop, job)


def note(client: Client, loop: str, job: int, error: Exception) -> None:
    """Have it shown that the job's turn failed."""
    _failed.add((loop, job))
    why = clean_text(f"{type(error).__name__}: {' '.join(str(error).split())}", 300)
    client.hset(names.TURNS_FAILED, _field(loop, job), msgspec.json.encode((time.time(), why)))


def forget(client: Client, loop: str, job: int) -> None:
    """Have it shown no more: the job's turn went well."""
    _failed.discard((loop, job))
    client.hdel(names.TURNS_FAILED, _field(loop, job))


def failed_turns(client: Client) -> str:
    """For the operator: which loops fail for which jobs, why, and the cure; empty while all is well."""
    found: dict[bytes, bytes] = client.execute_command("HGETALL", names.TURNS_FAILED)
    oldest = time.time() - SHOWN_S
    told = []
    for field, value in sorted(found.items()):
        at, why = msgspec.json.decode(value)
        loop, _, job = field.decode().rpartition(":")
        if at > oldest:
            told.append(f"job {job} is left out of {loop} ({why})")
    if not told:
        return ""
    more = f", and {len(told) - 5} more" if len(told) > 5 else ""
    return (
        f"{'; '.join(told[:5])}{more}. Other jobs go on, and it is tried again each time; stop such a job if that does"
        " not help, and see the log of the history service."
    )


def _is_everybodys(error: Exception) -> bool:
    """Whether Redis or the database is not there, busy or full."""
    if isinstance(error, RedisError):
        return not isinstance(error, ResponseError) or isinstance(error, OutOfMemoryError | ReadOnlyError)
    return is_out_of_reach(error)


def _field(loop: str, job: int) -> str:
    return f"{loop}:{job}"
