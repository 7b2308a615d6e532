"""Orders: the whole of what a worker, server or agent may do next, as one small value each.

Newer orders replace older ones whole, so a lost, late or repeated message is harmless. Orders compare by
``(incarnation, generation, sequence)``.
"""

from typing import Literal

from controlplane.protocol.base import Count, Name, Positive, Value
from controlplane.protocol.spec import Emulation, JobSpec

Role = Literal["worker", "server"]

Apply = Literal["quorum", "arrival", "release"]
"""When a server applies a contribution: with those of everybody who counts; at once; when its sender was let pass."""


class Range(Value, frozen=True, kw_only=True):
    """Samples that were handed out with leave for the iterations ``first`` to ``last``.

    Iteration ``k`` takes the ``share`` positions from ``position + (k - first) * share`` on.
    """

    first: Count
    last: Count
    position: Count
    share: Count


class Orders(Value, frozen=True, kw_only=True, tag="orders"):
    """What one worker may do next.

    The share holds for iterations ``share_from`` to ``share_until``. Where ``share_until`` is behind the worker, it
    waits at most ``decision_timeout_s`` for newer orders and then goes on with this share. With data ``shared``,
    iteration ``k`` takes positions ``origin_position + (k - origin_iteration) * global_batch + offset`` onwards of
    the job's seeded permutations.
    """

    incarnation: Count
    generation: Count
    sequence: Count
    share: Count
    offset: Count
    global_batch: Positive
    origin_iteration: Count
    origin_position: Count
    share_from: Count
    share_until: Count
    watermark: int
    """May start iterations up to and including this one; -1: none yet."""
    placement_version: Count
    stop_at: Count | None = None
    """Do not start this iteration or any later one."""
    decision_timeout_s: float = 1.0
    evaluator: bool = False
    """Whether this worker scores the held-out split and saves the final parameters."""
    durable: Count = 0
    """The highest message number of this worker that need not be sent again."""
    held_s: float = 0.0
    """How long the control plane itself held the answer back, waiting for others."""
    ranges: list[Range] = []
    """Asynchronous modes hand out samples in order of release: those of every iteration that this worker has leave
    for and has not reported. Where there are any, they replace share, offset and origin; those speak of the last."""
    skip_to: Count = 0
    """Iterations before this one are not owed: leave the one that is under way, report none, go on with this one."""
    hold: bool = False
    """Start no further iteration, whatever the watermark, and say ``Held``, until newer orders come without it."""
    cut: Count | None = None
    """Stop processing samples of this iteration and push what there is (A-BSP); ignored when it is over."""
    progress_s: float | None = None
    """How often to say ``ProgressReport`` while computing; None: never."""
    announce: bool = False
    """Say ``Computed`` before each push."""

    @property
    def rank_in_time(self) -> tuple[int, int, int]:
        """Newer orders compare greater."""
        return self.incarnation, self.generation, self.sequence


class Block(Value, frozen=True, kw_only=True):
    """A slice ``[start, stop)`` of the flattened parameters, counted in elements, and the server that holds it."""

    index: Count
    start: Count
    stop: Positive
    server: Count


class ServerAddress(Value, frozen=True, kw_only=True):
    """Where a server listens, and what proves this worker to it (and it to this worker)."""

    index: Count
    instance: Name
    host: str
    port: Positive
    key: bytes


class Placement(Value, frozen=True, kw_only=True, tag="placement"):
    """Which server holds which block, for one worker. Replaced whole; versions only rise."""

    incarnation: Count
    version: Positive
    blocks: list[Block]
    servers: list[ServerAddress]


class Member(Value, frozen=True, kw_only=True):
    """A worker that counts in the roster, from an iteration on."""

    rank: Count
    instance: Name
    from_iteration: Count


class ServerOrders(Value, frozen=True, kw_only=True, tag="server-orders"):
    """What one server holds, and whose contributions close an iteration."""

    incarnation: Count
    generation: Count
    sequence: Count
    members: list[Member]
    placement_version: Count
    blocks: list[Block]
    """Only those of this server."""
    durable: Count = 0
    apply: Apply = "quorum"
    apply_from: Count = 0
    """From which iteration on ``apply`` holds; those before it are finished as the orders before had it."""
    quorums: dict[int, list[int]] = {}
    """Backup workers: an iteration that stands here closes with the contributions of exactly these ranks."""
    named_from: Count | None = None
    """From this iteration on none closes before it stands in ``quorums``; any other takes every member's."""
    passed: dict[int, int] = {}
    """With ``apply`` "release": by rank, up to which iteration its contributions may be applied. Those that newer
    orders let pass together are applied as one sum (PSP Alg. 1)."""

    @property
    def rank_in_time(self) -> tuple[int, int, int]:
        """Newer orders compare greater."""
        return self.incarnation, self.generation, self.sequence


class ProcessOrder(Value, frozen=True, kw_only=True):
    """A process that an agent is to keep running. ``key`` is the process's own credential, as a hex string."""

    job: Positive
    role: Role
    index: Count
    instance: Name
    slot: Count
    key: str
    spec: JobSpec
    emulate: Emulation | None = None


class AgentOrders(Value, frozen=True, kw_only=True, tag="agent-orders"):
    """Every process that the agent should be running; whatever else it runs for a job is to end."""

    sequence: Count
    processes: list[ProcessOrder]
    durable: Count = 0


class Rejection(Value, frozen=True, kw_only=True, tag="rejection"):
    """The typed error to the sender of a message that changed nothing."""

    code: Literal["malformed", "oversized", "out-of-order", "stale", "foreign", "unexpected", "unauthorised"]
    detail: str
    number: Count | None = None
