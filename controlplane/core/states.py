"""Life cycles, as tables: of a job, and of its worker and server processes, with the record of each instance.

A state changes only along the arrows of its table; ``move`` raises for any other transition. Each instance of a process
is one record. A restarted process gets a new record, so nothing of the earlier instance is left in it.
"""

from enum import StrEnum
from typing import TypeVar

import msgspec

from controlplane.protocol.checkpoints import FoundCheckpoint
from controlplane.protocol.energy import Power
from controlplane.protocol.messages import Computed, IterationReport, ProgressReport
from controlplane.protocol.orders import Orders, Piece, Range, Role
from controlplane.protocol.spec import Emulation


class JobState(StrEnum):
    """States of a job."""

    SUBMITTED = "submitted"
    SCHEDULED = "scheduled"
    STARTING = "starting"
    RUNNING = "running"
    PAUSED = "paused"
    FINISHING = "finishing"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"


J = JobState

JOB_ARROWS: dict[JobState, frozenset[JobState]] = {
    J.SUBMITTED: frozenset({J.SCHEDULED, J.STARTING, J.CANCELLED, J.FAILED}),
    J.SCHEDULED: frozenset({J.STARTING, J.CANCELLED, J.FAILED}),
    J.STARTING: frozenset({J.RUNNING, J.FINISHING, J.CANCELLED, J.FAILED}),
    J.RUNNING: frozenset({J.PAUSED, J.FINISHING, J.CANCELLED, J.FAILED}),
    J.PAUSED: frozenset({J.RUNNING, J.FINISHING, J.CANCELLED, J.FAILED}),
    J.FINISHING: frozenset({J.PAUSED, J.SUCCEEDED, J.CANCELLED, J.FAILED}),
    J.SUCCEEDED: frozenset(),
    J.FAILED: frozenset(),
    J.CANCELLED: frozenset(),
}

JOB_OVER = frozenset(state for state, after in JOB_ARROWS.items() if not after)

RANKS_AWAITED = "ranks"
"""``awaited`` of a job starts with this word only while it waits for ranks."""

ENDED_AS: dict[str, str] = {J.SUCCEEDED: "has succeeded", J.FAILED: "has failed", J.CANCELLED: "was cancelled"}

State = TypeVar("State", bound=StrEnum)


def in_words(state: str) -> str:
    """The state as the end of a sentence that begins with "the job": "has succeeded", "is running"."""
    return ENDED_AS.get(state, f"is {state}")


class IllegalMove(RuntimeError):
    """A state was asked to change along an arrow that does not exist; nothing has changed."""


def move(subject: str, arrows: dict[State, frozenset[State]], old: State, new: State) -> State:
    """``new``, if the table has that arrow.

    Raises:
        IllegalMove: naming the subject, both states, and where it may go.
    """
    if new not in arrows[old]:
        allowed = ", ".join(sorted(arrows[old])) or "nowhere: it is over"
        raise IllegalMove(f"{subject}: cannot go from {old} to {new}; from {old} it may go to {allowed}")
    return new


class ProcessState(StrEnum):
    """States of a worker or server process."""

    ORDERED = "ordered"
    READY = "ready"
    UNREACHABLE = "unreachable"
    FINISHED = "finished"
    LOST = "lost"
    """It has ended by itself, or sends no heartbeats."""
    STOPPED = "stopped"

    @classmethod
    def _missing_(cls, value: object) -> "ProcessState | None":
        """The name of lost in logs and snapshots of earlier releases."""
        return cls.LOST if value == "dead" else None


P = ProcessState

PROCESS_ARROWS: dict[ProcessState, frozenset[ProcessState]] = {
    P.ORDERED: frozenset({P.READY, P.LOST, P.STOPPED}),
    P.READY: frozenset({P.UNREACHABLE, P.FINISHED, P.LOST, P.STOPPED}),
    P.UNREACHABLE: frozenset({P.READY, P.LOST, P.STOPPED}),
    P.FINISHED: frozenset({P.LOST, P.STOPPED}),
    P.LOST: frozenset(),
    P.STOPPED: frozenset(),
}

AT_WORK = frozenset({P.ORDERED, P.READY, P.UNREACHABLE})
"""The process runs and has not reached the end of the job."""
HERE = frozenset({P.READY, P.UNREACHABLE})
"""It has said hello and has not ended."""
READY, UNREACHABLE = P.READY, P.UNREACHABLE
"""For checks on every message: looking up a member in its class takes ten times as long as a global name."""
PROCESS_OVER = frozenset(state for state, after in PROCESS_ARROWS.items() if not after)


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
    scales_lr: bool = False
    """Whether its learning rate follows the global batch."""
    counts: bool = False
    """It is a part of the present generation."""
    first: IterationReport | None = None
    """Of its first iteration, if that had samples."""


class Process(msgspec.Struct, kw_only=True):
    """The current instance of one worker or server."""

    role: Role
    index: int
    instance: str
    agent: int
    slot: int
    emulate: Emulation | None
    state: ProcessState
    since_ms: int
    seen_ms: int
    """The time of its last heartbeat."""
    power: Power | None = None
    """A worker's power by its machine's labels."""
    ordered_ms: int = 0
    last_number: int = 0
    """The number of the last message handled."""
    found: list[FoundCheckpoint] = []
    skipped: list[str] = []
    """Usable checkpoints by the process that holds the parameters, and why others are not usable."""
    initial: str = ""
    """A checksum of its initial parameters, where several processes create them."""

    @property
    def title(self) -> str:
        """Its short name: ``w3``, ``s0``."""
        return f"{self.role[0]}{self.index}"

    @property
    def over(self) -> bool:
        """Whether this instance has ended."""
        return self.state in PROCESS_OVER


class Pieces(msgspec.Struct, kw_only=True):
    """Where the data are split: the samples that a worker has for one iteration; replaced whole."""

    iteration: int = -1
    ranges: list[Piece] = []
    drawn: int = 0
    """How many were processed and are not counted in the splits yet."""
    counted: bool = False
    """The splits count all of them as processed already."""


class Worker(Process, kw_only=True):
    """A worker's current instance."""

    done: int = -1
    """Its last reported iteration."""
    done_ms: int = 0
    reports: int = 0
    from_iteration: int = 0
    """The first iteration that it counts in."""
    watermark: int = -1
    """May start iterations up to this one."""
    granted: int = -1
    """The highest watermark ever sent to it: it may have used that before it received a lower one."""
    skip_to: int = 0
    """The first iteration that it must report."""
    leases: list[Range] = []
    """Asynchronous modes: the samples of the iterations that it was granted and has not reported."""
    stop_at: int | None = None
    """Asynchronous modes: where this worker ends."""
    pace_s: float = 0.0
    """Asynchronous modes: smoothed length of its iterations."""
    pieces: Pieces = msgspec.field(default_factory=Pieces)
    is_stopped: bool = False
    """It has reported that it stopped at a boundary, following orders with ``hold``."""
    early: list[IterationReport | ProgressReport | Computed] = []
    """Messages about iterations that are not granted here; published orders may show that they were."""
    orders: Orders | None = None
    ceiling: int | None = None
    """The largest number of samples that fits into its memory, once it has run out of memory."""
    parameters: int = 0
    """How many it has, by its hello."""
    own_samples: int = 0
    """How many samples it owns, from its hello; 0: it may draw any."""
    host: str = ""
    port: int = 0
    """Where the other workers of an all-reduce job find it."""
    rank: Rank | None = None
    """Of an attached job: the contents of its hello."""
    environment: dict[str, str] = {}
    """Likewise, for people."""
    watts: float | None = None
    """Its power while it is busy, smoothed; None: not measured."""

    @property
    def last_completed(self) -> int:
        """The last iteration that it has finished or need not report."""
        done, due_from = self.done, self.from_iteration
        return done if done >= due_from else due_from - 1

    @property
    def is_at_boundary(self) -> bool:
        """Whether it has stopped there: it reported so, or was granted nothing beyond."""
        return self.is_stopped or self.state is ProcessState.FINISHED or self.last_completed >= self.granted


class Server(Process, kw_only=True):
    """A server's current instance."""

    host: str = ""
    port: int = 0
    tensor_sizes: list[int] = []
    retiring: bool = False
    """It was ordered to stop, since it holds no blocks any more."""
    draining: bool = False
    """It is drained: it gets no more blocks, hands over those that it has, and then ends."""
    generation: int = -1
    """The one that it follows, by its last report."""
    highest: int = 0
    """The highest version of its blocks, by its last report."""
