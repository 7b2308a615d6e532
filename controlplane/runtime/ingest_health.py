"""Health of ingest: warnings when it is stalled or behind, and the backlog that slows senders down.

No data is lost meanwhile: streams grow, senders keep messages until they are durable, and ingest retries.
"""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from django.db import DatabaseError, InterfaceError, InternalError, OperationalError, connection

from controlplane.runtime import names
from controlplane.runtime.freshness import behind, copying
from controlplane.runtime.redis import Client

WORTH_SHOWING: Final = names.LONG_LOG // 2
"""Backlog of entries above which operators are warned; senders are slowed down at twice as many."""

CURES: Final = (
    (("disk is full", "no space left", "disk full"), "its disk is full", "free disk space"),
    (("readonly", "read-only"), "it is read-only", "make it writable, or check which server is used"),
    (("locked", "lock timeout", "deadlock"), "another process has locked it", "end the process that holds the lock"),
    (("malformed", "not a database", "corrupt"), "it is damaged", "restore a backup, or move it away"),
    (("disk i/o error",), "its disk fails", "check the disk"),
)
OUT_OF_REACH: Final = "it is unreachable"
BRING_IT_BACK: Final = "restart it, or check DATABASE_URL"


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """State of ingest."""

    stopped_since: datetime | None
    why: str
    job: int | None
    """The job with most entries in Redis, and their number."""
    entries: int
    behind: str = ""
    """A message if entries wait for too long, with the cure."""

    @property
    def sentence(self) -> str:
        """The message for operators; empty while healthy."""
        if self.stopped_since is not None:
            since = self.stopped_since.strftime("%Y-%m-%d %H:%M:%S UTC")
            return f"Ingest has been stalled since {since}: {self.why} It resumes automatically. {self._kept()}"
        if self.entries >= WORTH_SHOWING:
            return f"{self.behind or 'History falls behind.'} {self._kept()}"
        return self.behind

    def _kept(self) -> str:
        if self.job is None:
            return "No data is lost."
        kept = f"No data is lost: Redis buffers {self.entries:,} entries of job {self.job}"
        if self.entries >= names.LONG_LOG:
            return f"{kept}; its processes are slowed down to keep at most about {names.FULL_LOG:,}."
        return f"{kept}; above {names.LONG_LOG:,}, its processes are slowed down."


def is_out_of_reach(error: Exception) -> bool:
    """Whether the database is unreachable, locked, full or broken, so that no job is at fault."""
    return isinstance(error, OperationalError | InterfaceError | InternalError) or type(error) is DatabaseError


def explained(error: Exception) -> str:
    """The problem of the database, and the cure."""
    found = " ".join(str(error).split()) or type(error).__name__
    for words, what, cure in CURES:
        if any(word in found.lower() for word in words):
            return f"the database accepts no writes: {what} ({found}): {cure}."
    return f"the database accepts no writes: {OUT_OF_REACH} ({found}): {BRING_IT_BACK}."


def note_ingest_error(client: Client, error: Exception) -> bool:
    """Record that ingest is stalled; True if it was not before. The broken connection is closed."""
    connection.close()
    why = explained(error)
    seconds, microseconds = client.time()
    now_ms = int(seconds) * 1000 + int(microseconds) // 1000
    is_new = bool(client.hsetnx(names.INGEST_TROUBLE, "since_ms", now_ms))
    client.hset(names.INGEST_TROUBLE, "why", why)
    return is_new


def clear_ingest_error(client: Client) -> bool:
    """Record that ingest made progress; returns whether it was stalled."""
    return bool(client.delete(names.INGEST_TROUBLE))


def history(client: Client) -> History:
    """The current state."""
    trouble = client.execute_command("HMGET", names.INGEST_TROUBLE, "since_ms", "why")
    jobs = sorted(int(job) for job in client.smembers(names.LIVE_JOBS))
    with client.pipeline(transaction=False) as pipeline:
        for job in jobs:
            pipeline.xlen(names.events(job))
        lengths = dict(zip(jobs, pipeline.execute(), strict=True))
    longest = max(lengths, key=lambda job: lengths[job], default=None)
    since_ms, why = trouble
    return History(
        stopped_since=datetime.fromtimestamp(int(since_ms) / 1000, tz=UTC) if since_ms else None,
        why=(why or b"").decode(),
        job=longest,
        entries=lengths[longest] if longest is not None else 0,
        behind="" if since_ms else _behind(client),
    )


def _behind(client: Client) -> str:
    """How far pages are behind; unknown while the database is unreachable, which is reported elsewhere."""
    try:
        return behind(client, copying(client))
    except (DatabaseError, InterfaceError) as error:
        if not is_out_of_reach(error):
            raise
        return ""
