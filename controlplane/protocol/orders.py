"""Orders: everything that a worker, server or agent may do next, in one small message each.

Newer orders replace older ones completely, so lost, late and repeated messages are harmless. Orders are compared by
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
"""Parameters are sent as float32."""

Role = Literal["worker", "server"]

Apply = Literal["quorum", "arrival", "release"]
"""When a server applies a contribution: with those of all members; immediately; or when its sender is released."""


class Range(Value, frozen=True, kw_only=True):
    """Samples that were granted for the iterations ``first`` to ``last``.

    Iteration ``k`` uses the ``share`` positions from ``position + (k - first) * share`` on.
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

    The share applies to iterations ``share_from`` to ``share_until``. If ``share_until`` is before the worker's
    iteration, it waits at most ``decision_timeout_s`` for newer orders and then continues with this share. With data
    ``shared``, iteration ``k`` uses positions ``origin_position + (k - origin_iteration) * global_batch + offset``
    onwards of the job's seeded permutations.
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
    """The granted iteration: iterations up to and including this one may start; -1: none yet."""
    placement_version: Count32
    stop_at: Count32 | None = None
    """Do not start this iteration or any later one."""
    decision_timeout_s: Seconds = 1.0
    evaluator: bool = False
    """Whether this worker evaluates the held-out split and saves the final parameters."""
    held_s: Seconds = 0.0
    """How long the control plane delayed the orders because it waited for other workers."""
    ranges: list[Range] = []
    """In asynchronous modes samples are assigned in order of release: those of every iteration that was granted to this
    worker and not reported. If there are any, they replace share, offset and origin, which then describe the last one.
    """
    skip_to: Count32 = 0
    """Skip iterations before this one: abandon the one in progress, do not report it, continue with this one."""
    hold: bool = False
    """Start no further iteration, even if granted, and send ``Quiesced``, until newer orders without it."""
    cut: Count32 | None = None
    """Stop processing samples of this iteration and push the partial sum (A-BSP); ignored when it is over."""
    progress_s: Seconds | None = None
    """How often to send ``ProgressReport`` while computing; None: never."""
    announce: bool = False
    """Send ``Computed`` before each push."""
    budget_s: Seconds | None = None
    """Stop processing samples of an iteration after this time and push the partial sum; None:
    when the share is done.
    """
    ceiling: Count32 | None = None
    """With a budget: maximum number of samples to process, at least the share."""
    pieces: list[Piece] = []
    """If the dataset is divided among the workers: the samples of iteration ``pieces_of``, in order. They replace
    share, offset, origin and ranges for that iteration.
    """
    pieces_of: Count32 | None = None
    final: bool = True
    """No other worker will push any more: when this one ends, its parameters are the final ones."""
    probes: dict[Count32, Count] = {}
    """Servers to time with an extra exchange of this many bytes."""
    probe_round: Count32 = 0
    """Probes of one round are made once, even if they are ordered repeatedly."""
    refill: Count32 = 0
    """Servers were lost: stop using them, and report the copies of the ``lost`` blocks once per number."""
    lost: list[Count32] = []
    """Their blocks that are not restored yet."""
    fills: list[Count32] = []
    """Blocks of these that this worker should send to their new server, as last pulled."""
    restore: Restore | None = None
    """If the workers hold the parameters: the checkpoint that this instance starts from; None: version 0, or the
    parameters of the other workers.
    """
    keeper: Name | None = None
    """If the workers hold the parameters: the worker that saves checkpoints, to a folder that all workers share."""
    whole: WholeCheckpoint | None = None
    """For that worker: write the manifest of this checkpoint."""
    shares: list[Count32] = []
    """For attached ranks: the share of every rank. They apply from an iteration on which the ranks agree."""
    shares_version: Count = 0
    """Increases with each change of ``shares``, for the whole life of the job."""
    begins: Count | None = None
    """For attached ranks: the position in the permutations at which ``share_from`` begins, from reports; None: not
    known.
    """
    fill_batch: Count32 = 0
    """For attached ranks: samples of one iteration, over all, from the next pass on; 0: unchanged. Smaller than the
    current batch: the guard reverts a larger one.
    """
    fill_rule: Literal["", "linear", "square-root"] = ""
    """The rule of the learning rate, if ``fill`` was requested."""
    sampling: PeerSampling | None = None
    """The worker samples its peers itself: granted iterations may start once the sampled peers have progressed far
    enough. None: granted iterations may start.
    """

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
    """The address of a server, and the credential between it and the recipient of this message (a worker or another
    server).
    """

    index: Count32
    instance: Name
    host: Host
    port: Port
    key: Annotated[bytes, Meta(max_length=64)]

    @property
    def where(self) -> str:
        """For display."""
        return f"server {self.index} at {self.host}:{self.port}"


class PeerAddress(Value, frozen=True, kw_only=True):
    """A worker's address for other workers: the store of an all-reduce job, or for progress requests."""

    rank: Count32
    host: Host
    port: Port
    instance: Word = ""
    """For progress requests: the instance that should respond."""
    from_iteration: Count32 = 0
    """For progress requests: it need not finish iterations before this one."""
    key: Annotated[bytes, Meta(max_length=64)] = b""
    """For progress requests: the credential between it and the recipient of this message."""

    @property
    def where(self) -> str:
        """For display."""
        return f"worker {self.rank} at {self.host}:{self.port}"


class Placement(Value, frozen=True, kw_only=True, tag="placement"):
    """Which server holds which block, for one worker. Replaced as a whole; versions only increase.

    An all-reduce job has no servers and blocks: each of its generations is a placement with its workers.
    """

    incarnation: Count32
    version: Positive32
    blocks: list[Block]
    servers: list[ServerAddress]
    generation: Count32 = 0
    peers: list[PeerAddress] = []
    """The members of that generation by rank: in all-reduce jobs, or for progress requests."""
    refills: dict[Count32, Count32] = {}
    """By block: how often it was restored from a worker's copy after its server was lost."""
    again: bool = True
    """Whether updates that such a block may lack should be pushed to it again."""


class Member(Value, frozen=True, kw_only=True):
    """A worker that counts in the roster from an iteration on."""

    rank: Count32
    instance: Name
    from_iteration: Count32


class ServerOrders(Value, frozen=True, kw_only=True, tag="server-orders"):
    """The blocks of one server, and whose contributions complete an iteration."""

    incarnation: Count32
    generation: Count32
    sequence: Count
    members: list[Member]
    placement_version: Count32
    blocks: list[Block]
    """Only those of this server."""
    next_placement: Count32 = 0
    """The placement of a move in progress; 0: there is none, and blocks frozen for one are in use again."""
    sends: dict[Count32, Count32] = {}
    """Blocks that this server should hand over for it, by block: the receiving server."""
    receivers: list[ServerAddress] = []
    """Addresses and credentials of those servers; if servers clip gradients by their norm, of all other servers."""
    freeze_at: Count32 = 0
    """The version from which on those blocks are frozen."""
    apply: Apply = "quorum"
    apply_from: Count32 = 0
    """The first iteration for which ``apply`` holds; earlier ones are completed under the previous orders."""
    skip_to: Count32 = 0
    """Iterations before this one need no contributions: if an older one is open, open this one."""
    scale: Annotated[float, Meta(gt=0.0, le=1e6)] = 1.0
    """With ``apply`` "arrival" and "release": each contribution is this fraction of a step."""
    gather: Positive32 = 1
    """With ``apply`` "arrival" and "release": this many contributions make one step along their mean."""
    aggregation: Aggregation = "sample-weighted"
    """The weight of each contribution."""
    awaits: list[Count32] = []
    """Blocks to restore from a worker's copy, which it had pulled from the lost server."""
    beside: list[Name] = []
    """Instances of all servers of the job, if it saves checkpoints: they must all write to the same folder."""
    restore: Restore | None = None
    """The checkpoint for new blocks that no server hands over; None: version 0."""
    save_at: Count32 | None = None
    """In asynchronous modes: every worker is quiesced; save all blocks as the checkpoint of this iteration."""
    whole: WholeCheckpoint | None = None
    """For one server: write the manifest of this checkpoint."""
    quorums: dict[Count32, list[Count32]] = {}
    """Backup workers: an iteration listed here consists of the contributions of exactly these ranks."""
    named_from: Count32 | None = None
    """From this iteration on, an iteration is complete only if it is listed in ``quorums``; earlier ones need every
    member's contribution.
    """
    passed: dict[Count32, Count32] = {}
    """With ``apply`` "release": by rank, the last iteration whose contribution may be applied. Those that the same
    orders release are applied as one sum (PSP Alg. 1).
    """

    @property
    def rank_in_time(self) -> tuple[int, int, int]:
        """Newer orders compare greater."""
        return self.incarnation, self.generation, self.sequence


class CheckpointFolders(Value, frozen=True, kw_only=True):
    """Folders below an agent's checkpoint folder."""

    own: Name
    """The folder to which this job writes."""
    start: Word = ""
    """The folder from which the job should start; "" if none."""


Certificate = Annotated[bytes, Meta(max_length=4096)]
"""X.509 in DER; empty: none."""


class Script(Value, frozen=True, kw_only=True):
    """One process of a script that agents start: its rank among the others. The spec has the command."""

    world: Positive32
    slots: list[Count32]
    """The slots of all its ranks on the process's machine, in order of rank: local ranks count along them."""
    address: Host
    """The machine of rank 0, where the ranks meet."""
    attempt: Positive32
    """How often the script was started, with this time."""
    port: Annotated[int, Meta(ge=0, le=65_535)] = 0
    """Where rank 0 listens; 0 in the engine's command: set when it is carried out, as the token is."""
    token: Word = ""
    """The token with which the job's ranks attach."""


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
    """The certificate that the process presents on the data plane; its private key is derived from ``key``."""
    authority: Certificate = b""
    """The job's CA certificate, which signed the certificates of all its processes."""
    script: Script | None = None
    """For a process of a script instead of Paceline's own loop."""


class AgentOrders(Value, frozen=True, kw_only=True, tag="agent-orders"):
    """Every process that the agent should be running; it ends all other processes of jobs."""

    sequence: Count
    processes: list[ProcessOrder]
    durable: Count = 0


class Durable(Value, frozen=True, kw_only=True, tag="durable"):
    """All messages of the process up to this number are in the database and need not be resent."""

    number: Count


class CredentialIssued(Value, frozen=True, kw_only=True, tag="credential-issued"):
    """A new credential for the agent on this connection; sent only to one whose hello has ``rotates``."""

    secret: Annotated[str, Meta(min_length=20, max_length=200, pattern=NO_NUL)]

    def __repr__(self) -> str:
        return "CredentialIssued()"


class Rejection(Value, frozen=True, kw_only=True, tag="rejection"):
    """The error reply for a message that was not accepted."""

    code: Literal[
        "malformed", "oversized", "out-of-order", "slow-down", "stale", "foreign", "unexpected", "unauthorised"
    ]
    """After ``out-of-order``, resend all messages from ``number`` on; after ``slow-down``, do so a second later."""
    detail: Text
    number: Count | None = None
    incarnation: Count32 = 0
    """Incarnation of the job's log, if a message was out of order."""
