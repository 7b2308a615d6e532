"""State of attached jobs only: the ranks as described in their hello, and the state in which the job should end."""

from typing import Any, Final

import msgspec

from controlplane.protocol.messages import Place

VERSIONS: Final = 1_000_000
"""Share versions restart at this multiple of the incarnation, so that they increase even if part of the log is lost."""

LIVES_KEPT: Final = 8
"""By rank: earlier instances that are known to have ended."""


LAUNCHER: Final = "launcher:0:lease"
"""Its name in ``TimePassed.seen``, as ``role:index:instance``."""


class Rank(msgspec.Struct, kw_only=True):
    """One instance of a rank, as described by its hello."""

    world: int
    batch_size: int
    samples: int
    """Of one pass; 0: not known."""
    multiple: int
    starts: int
    """The iteration that it begins with."""
    knows: bool
    """Whether the rank itself stated it."""
    position: int | None
    """Position in the permutations at that iteration, if the rank knows it."""
    host: str = ""
    counts: bool = False
    """It is a part of the present generation."""


class Attachment(msgspec.Struct, kw_only=True):
    """Of the whole job."""

    version: int = 0
    """Of the shares."""
    past: dict[int, list[str]] = {}
    """Instances whose rank another process has taken, by rank, the oldest first."""
    waits_since_ms: int | None = None
    """When the job began to wait for ranks; None: it is not waiting."""
    launcher_seen_ms: int = 0
    """When its launcher last renewed the job's lease."""
    stalled_at: int = -1
    """The iteration that does not end, the furthest that a rank named; -1: none does."""
    stalled: dict[int, Place] = {}
    """What ranks that said so were doing, by rank."""
    stalled_in: dict[int, int] = {}
    """In which iteration: a rank that hangs after the sum is one behind those that wait for it."""
    ends_as: str = ""
    """The job's final state, set once its ranks have stopped or timed out."""

    def next_version(self, incarnation: int) -> int:
        """Of shares that change now."""
        self.version = max(self.version, incarnation * VERSIONS) + 1
        return self.version

    def bury(self, rank: int, instance: str) -> None:
        """Another process has taken its rank."""
        self.past[rank] = [*self.past.get(rank, []), instance][-LIVES_KEPT:]

    def is_past(self, rank: int, instance: str) -> bool:
        """Whether another process has taken its rank."""
        return instance in self.past.get(rank, ())


def about(hello: Any) -> dict[str, str]:
    """What a ``RankHello`` says of its process, by name, for people."""
    named = {
        **hello.environment,
        "machine": hello.host,
        "device": hello.device,
        "launcher": hello.launcher,
        "pid": str(hello.pid) if hello.pid else "",
        "paceline": hello.release,
        "micro-batch": str(hello.micro_batch) if hello.micro_batch else "",
    }
    return {name: value for name, value in named.items() if value}
