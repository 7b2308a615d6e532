"""Orders: everything that a worker, server or agent may do next, in one small message each.

Newer orders replace older ones whole, so a lost, late or repeated message is harmless. Orders compare by
``(incarnation, generation, sequence)``.
"""

from typing import Annotated, Final, Literal

from msgspec import Meta

from controlplane.protocol.base import (
    MAX_INT32,
    Count,
    Count32,
    Host,
    Name,
    Port,
    Positive,
    Positive32,
    Seconds,
    Text,
    Value,
    Word,
)
from controlplane.protocol.checkpoints import Restore, WholeCheckpoint
from controlplane.protocol.drawing import PeerSampling
from controlplane.protocol.spec import Emulation, JobSpec
from controlplane.protocol.text import NO_NUL
from controlplane.protocol.training import Aggregation

ELEMENT_BYTES: Final = 4
"""Parameters travel as float32."""

Role = Literal["worker", "server"]

Apply = Literal["quorum", "arrival", "release"]
"""When a server applies a contribution: with those of all members; immediately; or when its sender is released."""


class Range(Value, frozen=True, kw_only=True):
    """Samples that were granted for the iterations ``first`` to ``last``.

    Iteration ``k`` takes the ``share`` positions from ``position + (k - first) * share`` on.
    """

    first: Count32
    last: Count32
    position: Count
    share: Count32


class Piece(Value, frozen=True, kw_only=True):
    """Samples at the positions ``[start, stop)`` of the job's first permutation, all of one split."""

    split: Count
    start: Count
    stop: Count


class Orders(Value, frozen=True, kw_only=True, tag="orders"):
    """What one worker may do next.

    The share holds for iterations ``share_from`` to ``share_until``. Where ``share_until`` is behind the worker, it
    waits at most ``decision_timeout_s`` for newer orders and then continues with this share. With data ``shared``,
    iteration ``k`` takes positions ``origin_position + (k - origin_iteration) * global_batch + offset`` onwards of
    the job's seeded permutations.
    """

    incarnation: Count32
    generation: Count32
    sequence: Count
    share: Count32
    offset: Count32
    global_batch: Positive32
    origin_iteration: Count32
    origin_position: Count
    share_from: Count32
    share_until: Count32
    watermark: Annotated[int, Meta(ge=-1, le=MAX_INT32)]
    """May start iterations up to and including this one; -1: none yet."""
    placement_version: Count32
    stop_at: Count32 | None = None
    """Do not start this iteration or any later one."""
    decision_timeout_s: Seconds = 1.0
    evaluator: bool = False
    """Whether this worker scores the held-out split and saves the final parameters."""
    held_s: Seconds = 0.0
    """How long the control plane itself held the answer back, waiting for others."""
    ranges: list[Range] = []
    """Asynchronous modes hand out samples in order of release: those of every iteration that was granted to this
    worker and not reported. Where there are any, they replace share, offset and origin; those describe the last one."""
    skip_to: Count32 = 0
    """Skip iterations before this one: abandon the one in progress, do not report it, continue with this one."""
    hold: bool = False
    """Start no further iteration, whatever was granted, and send ``Quiesced``, until newer orders come without it."""
    cut: Count32 | None = None
    """Stop processing samples of this iteration and push what there is (A-BSP); ignored when it is over."""
    progress_s: Seconds | None = None
    """How often to send ``ProgressReport`` while computing; None: never."""
    announce: bool = False
    """Send ``Computed`` before each push."""
    budget_s: Seconds | None = None
    """Stop processing samples of an iteration after so long and push what there is; None: when the share is done."""
    ceiling: Count32 | None = None
    """With a budget: how many samples to process at most, which is the share or more."""
    pieces: list[Piece] = []
    """Where the data set is split among the workers: the samples of iteration ``pieces_of``, in order. They replace
    the positions of share, offset, origin and ranges for that iteration."""
    pieces_of: Count32 | None = None
    final: bool = True
    """Only this worker will still push: when it ends, its parameters are the final ones."""
    probes: dict[Count32, Count] = {}
    """Servers to time by an extra exchange of so many bytes."""
    probe_round: Count32 = 0
    """Probes of one round are made once, however often they are ordered."""
    refill: Count32 = 0
    """Servers were lost: stop using them, and report once for each number the copies of the ``lost`` blocks."""
    lost: list[Count32] = []
    """Their blocks that are not filled again."""
    fills: list[Count32] = []
    """Those of them to be given to their new server, as this worker pulled them last."""
    restore: Restore | None = None
    """Where the workers hold the parameters: the checkpoint that this instance begins with; None: the first version, or
    what the others have."""
    keeper: Name | None = None
    """Likewise, if checkpoints are written: the worker that writes them, to a folder that all workers share."""
    whole: WholeCheckpoint | None = None
    """To that worker: write the manifest of this checkpoint."""
    shares: list[Count32] = []
    """To attached ranks: the share of every rank. They hold from an iteration on that the ranks agree on."""
    shares_version: Count = 0
    """Increases with each change of ``shares``, as long as the job exists."""
    begins: Count | None = None
    """To attached ranks: where in the permutations ``share_from`` begins, by reports; None: not known."""
    fill_batch: Count32 = 0
    """To attached ranks: samples of one iteration, over all, from the next pass on; 0: as in this one. Fewer than in
    this one: the guard takes back a larger batch."""
    fill_rule: Literal["", "linear", "square-root"] = ""
    """Of the learning rate, where ``fill`` was asked for."""
    sampling: PeerSampling | None = None
    """The worker samples the others itself: granted iterations begin once those have come far enough. None: what is
    granted may begin."""

    @property
    def rank_in_time(self) -> tuple[int, int, int]:
        """Newer orders compare greater."""
        return self.incarnation, self.generation, self.sequence


class Block(Value, frozen=True, kw_only=True):
    """A slice ``[start, stop)`` of the flattened parameters, counted in elements, and the server that holds it."""

    index: Count32
    start: Count
    stop: Positive
    server: Count32

    @property
    def bytes(self) -> int:
        """The size of its values."""
        return (self.stop - self.start) * ELEMENT_BYTES


class ServerAddress(Value, frozen=True, kw_only=True):
    """Where a server listens, and what proves the reader of this to it (a worker, or another server) and it to them."""

    index: Count32
    instance: Name
    host: Host
    port: Port
    key: Annotated[bytes, Meta(max_length=64)]

    @property
    def where(self) -> str:
        """For people."""
        return f"server {self.index} at {self.host}:{self.port}"


class PeerAddress(Value, frozen=True, kw_only=True):
    """A worker, and where the others find it: the store of an all-reduce job, or where it says how far it is."""

    rank: Count32
    host: Host
    port: Port
    instance: Word = ""
    """Where workers ask one another: the one that should answer."""
    from_iteration: Count32 = 0
    """Likewise: it need not finish those before."""
    key: Annotated[bytes, Meta(max_length=64)] = b""
    """Likewise: what proves the reader of this to it, and it to them."""

    @property
    def where(self) -> str:
        """For people."""
        return f"worker {self.rank} at {self.host}:{self.port}"


class Placement(Value, frozen=True, kw_only=True, tag="placement"):
    """Which server holds which block, for one worker. Replaced as a whole; versions only increase.

    An all-reduce job has neither: each of its generations is a placement, with the workers that make it.
    """

    incarnation: Count32
    version: Positive32
    blocks: list[Block]
    servers: list[ServerAddress]
    generation: Count32 = 0
    peers: list[PeerAddress] = []
    """The members of that generation, by rank: of an all-reduce job, or where workers ask one another."""
    refills: dict[Count32, Count32] = {}
    """How often a block began again with a worker's copy, since its server was lost, by block."""
    again: bool = True
    """Whether updates that such a block may lack should be pushed to it again."""


class Member(Value, frozen=True, kw_only=True):
    """A worker that counts in the roster, from an iteration on."""

    rank: Count32
    instance: Name
    from_iteration: Count32


class ServerOrders(Value, frozen=True, kw_only=True, tag="server-orders"):
    """What one server holds, and whose contributions close an iteration."""

    incarnation: Count32
    generation: Count32
    sequence: Count
    members: list[Member]
    placement_version: Count32
    blocks: list[Block]
    """Only those of this server."""
    next_placement: Count32 = 0
    """The placement that a change under way leads to; 0: there is none, and what was frozen for one is in use again."""
    sends: dict[Count32, Count32] = {}
    """Blocks that this server should hand over for it, by block: the server that should hold it."""
    receivers: list[ServerAddress] = []
    """Where those servers are, and what proves this server to each of them; where servers clip gradients by their norm,
    all others, which must agree on it."""
    freeze_at: Count32 = 0
    """The version of the values from which on those blocks are frozen."""
    apply: Apply = "quorum"
    apply_from: Count32 = 0
    """From which iteration on ``apply`` holds; those before it are finished as the orders before had it."""
    skip_to: Count32 = 0
    """No worker must contribute to iterations before this one: if an older one is open, open this one."""
    scale: Annotated[float, Meta(gt=0.0, le=1e6)] = 1.0
    """With ``apply`` "arrival" and "release": each contribution makes so much of a step."""
    gather: Positive32 = 1
    """Likewise: so many contributions make one step along their mean, and none is made before."""
    aggregation: Aggregation = "sample-weighted"
    """What each contribution weighs."""
    awaits: list[Count32] = []
    """Blocks that begin with what a worker gives: a copy that it had pulled from the server that was lost."""
    beside: list[Name] = []
    """Instances of all servers of the job, where it keeps checkpoints: they must all write to the same folder."""
    restore: Restore | None = None
    """The checkpoint for new blocks that no server hands over; None: version 0."""
    save_at: Count32 | None = None
    """Asynchronous modes: every worker has stopped; save all blocks as they are, as the checkpoint of this
    iteration."""
    whole: WholeCheckpoint | None = None
    """To one server: write the manifest of this checkpoint."""
    quorums: dict[Count32, list[Count32]] = {}
    """Backup workers: an iteration listed here closes with the contributions of exactly these ranks."""
    named_from: Count32 | None = None
    """From this iteration on, none closes before it is listed in ``quorums``; earlier ones need every member's
    contribution."""
    passed: dict[Count32, Count32] = {}
    """With ``apply`` "release": by rank, up to which iteration its contributions may be applied. Those that newer
    orders let pass together are applied as one sum (PSP Alg. 1)."""

    @property
    def rank_in_time(self) -> tuple[int, int, int]:
        """Newer orders compare greater."""
        return self.incarnation, self.generation, self.sequence


class CheckpointFolders(Value, frozen=True, kw_only=True):
    """Folders below an agent's checkpoint folder."""

    own: Name
    """Where this job's are written."""
    start: Word = ""
    """Where those are that the job should start from; "" where it is not."""


Certificate = Annotated[bytes, Meta(max_length=4096)]
"""X.509 in DER; empty: none."""


class ProcessOrder(Value, frozen=True, kw_only=True):
    """A process that an agent should keep running. ``key`` is the process's own credential, as a hex string."""

    job: Positive
    role: Role
    index: Count32
    instance: Name
    slot: Count32
    key: Word
    spec: JobSpec
    emulate: Emulation | None = None
    checkpoints: CheckpointFolders | None = None
    certificate: Certificate = b""
    """What the process shows to those that it exchanges parameters with; its private key follows from ``key``."""
    authority: Certificate = b""
    """Of the job: it signed the certificates of all its processes."""


class AgentOrders(Value, frozen=True, kw_only=True, tag="agent-orders"):
    """Every process that the agent should be running; any other process of a job should end."""

    sequence: Count
    processes: list[ProcessOrder]
    durable: Count = 0


class Durable(Value, frozen=True, kw_only=True, tag="durable"):
    """All messages of the process up to this number are in the database and need not be resent."""

    number: Count


class CredentialIssued(Value, frozen=True, kw_only=True, tag="credential-issued"):
    """A new credential for the agent on this connection; said only to one whose hello has ``rotates``."""

    secret: Annotated[str, Meta(min_length=20, max_length=200, pattern=NO_NUL)]

    def __repr__(self) -> str:
        return "CredentialIssued()"


class Rejection(Value, frozen=True, kw_only=True, tag="rejection"):
    """The typed error to the sender of a message that changed nothing."""

    code: Literal[
        "malformed", "oversized", "out-of-order", "slow-down", "stale", "foreign", "unexpected", "unauthorised"
    ]
    """After ``out-of-order``, resend all messages from ``number`` on; after ``slow-down``, do so a second later."""
    detail: Text
    number: Count | None = None
    incarnation: Count32 = 0
    """Of the job's log, where a message was out of order."""
