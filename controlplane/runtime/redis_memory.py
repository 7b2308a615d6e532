"""Memory use of Redis: warns the operator before Redis is full.

The streams of one job are bounded (``names.FULL_LOG``); the sum over jobs, Celery's queues and other keys are not. A
full Redis refuses every write or, with an eviction policy, drops keys, and parts of job logs are lost.
"""

from dataclasses import dataclass
from typing import Final

from controlplane.runtime.redis import FAKE_RUN_ID, Client, redis_run_id

WARN_SHARE: Final = 0.75
"""Operators are warned above this fraction of the limit."""

KEEPS_ALL: Final = "noeviction"


@dataclass(frozen=True, slots=True, kw_only=True)
class RedisMemory:
    """Memory that Redis reports, in bytes."""

    used: int
    limit: int
    """``maxmemory``, otherwise the memory of its machine; 0 if unknown."""
    is_set: bool
    """Whether ``limit`` is ``maxmemory``."""
    policy: str
    """``maxmemory-policy``: what Redis does at its limit."""

    @property
    def sentence(self) -> str:
        """A warning for the operator; empty while healthy."""
        if self.is_set and self.policy != KEEPS_ALL:
            return (
                f"Redis evicts keys when it is full (maxmemory-policy is {self.policy}), including parts of "
                f"job logs: set it to {KEEPS_ALL}."
            )
        if not self.limit or self.used < WARN_SHARE * self.limit:
            return ""
        of = "its limit (maxmemory)" if self.is_set else "the memory of its machine"
        more = "raise maxmemory" if self.is_set else "use a larger machine"
        return (
            f"Redis uses {_mb(self.used)} of {_mb(self.limit)} MB, {of}. When it is full, it rejects "
            f"writes, and all jobs stop: {more}, stop jobs, or check that ingest keeps up."
        )


def redis_memory(client: Client) -> RedisMemory:
    """The present memory use. fakeredis has no limit and reports nothing."""
    info = client.info("memory") if redis_run_id() != FAKE_RUN_ID else {}
    limit = int(info.get("maxmemory", 0))
    return RedisMemory(
        used=int(info.get("used_memory", 0)),
        limit=limit or int(info.get("total_system_memory", 0)),
        is_set=limit > 0,
        policy=str(info.get("maxmemory_policy", KEEPS_ALL)),
    )


def _mb(size: int) -> str:
    return f"{size / 1e6:,.0f}"
