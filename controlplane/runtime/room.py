"""How much room Redis has left, over all jobs: the operator is told before it is full.

Each job's streams are bounded (``names.FULL_LOG``); all of them together, Celery's queues and whatever else is there
are not. A full Redis refuses every write, or throws keys away where it was told to: then a part of some log is lost.
"""

from dataclasses import dataclass
from typing import Final

from controlplane.runtime.redis import FAKE_LIFE, Client, told_life

WORTH_TELLING: Final = 0.75
"""Part of the limit from which on an operator is told."""

KEEPS_ALL: Final = "noeviction"


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """What Redis says of its memory, in bytes."""

    used: int
    limit: int
    """Its ``maxmemory``, or else that of its machine; 0: it does not say."""
    is_set: bool
    """Whether that is ``maxmemory``."""
    policy: str
    """What it does at its limit."""

    @property
    def sentence(self) -> str:
        """For the operator; empty while all is well."""
        if self.is_set and self.policy != KEEPS_ALL:
            return (
                f"Redis throws keys away when it is full (maxmemory-policy is {self.policy}), and with them parts of "
                f"jobs' logs: set it to {KEEPS_ALL}."
            )
        if not self.limit or self.used < WORTH_TELLING * self.limit:
            return ""
        of = "it may use (maxmemory)" if self.is_set else "its machine has"
        more = "raise maxmemory" if self.is_set else "give it a larger machine"
        return (
            f"Redis uses {_mb(self.used)} of the {_mb(self.limit)} MB that {of}. When it is full it takes nothing "
            f"more, and every job stands still: {more}, end jobs, or see that history keeps up."
        )


def room(client: Client) -> Room:
    """How it stands now. fakeredis, which knows no such limits, says nothing."""
    told = client.info("memory") if told_life() != FAKE_LIFE else {}
    limit = int(told.get("maxmemory", 0))
    return Room(
        used=int(told.get("used_memory", 0)),
        limit=limit or int(told.get("total_system_memory", 0)),
        is_set=limit > 0,
        policy=str(told.get("maxmemory_policy", KEEPS_ALL)),
    )


def _mb(size: int) -> str:
    return f"{size / 1e6:,.0f}"
