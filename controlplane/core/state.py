"""What the engine remembers of one job: plain records, and their snapshot.

A snapshot is written whole and carries the version of these records; one of another version is refused, and the
driver rebuilds it from the log.
"""

from typing import Any, Final

import msgspec

from controlplane.core.choices import Observation, Transfer
from controlplane.core.states import PROCESS_OVER, JobState, ProcessState
from controlplane.protocol.checkpoints import FoundCheckpoint, Restore, SavedBlock, WholeCheckpoint
from controlplane.protocol.keys import instance_name
from controlplane.protocol.messages import Computed, IterationReport, ProgressReport
from controlplane.protocol.orders import Block, Orders, Piece, Range, Role
from controlplane.protocol.spec import Choice, Emulation, JobSpec, Synchronization

SNAPSHOT_VERSION: Final = 4


class SnapshotVersionError(ValueError):
    """A snapshot that this release cannot read; the log can still be replayed."""


class Process(msgspec.Struct, kw_only=True):
    """The current life of one worker or server."""

    role: Role
    index: int
    instance: str
    agent: int
    slot: int
    emulate: Emulation | None
    state: ProcessState
    since_ms: int
    seen_ms: int
    """Its last sign of life."""
    ordered_ms: int = 0
    heard: int = 0
    """The last of its message numbers that was taken in."""
    found: list[FoundCheckpoint] = []
    skipped: list[str] = []
    """Checkpoints that the job could start from, by whoever holds the parameters, and why not from others."""
    initial: str = ""
    """A checksum of the parameters that it made to begin with, where others make them too."""

    @property
    def title(self) -> str:
        """How people call it: ``w3``, ``s0``."""
        return f"{self.role[0]}{self.index}"

    @property
    def over(self) -> bool:
        """Whether this life has ended."""
        return self.state in PROCESS_OVER


class Worker(Process, kw_only=True):
    """A worker's current life."""

    done: int = -1
    """Its last reported iteration."""
    done_ms: int = 0
    reports: int = 0
    from_iteration: int = 0
    """The first iteration that it counts in."""
    watermark: int = -1
    """May start iterations up to this one."""
    granted: int = -1
    """The highest watermark that it was ever told: it may have gone so far before it heard of a lower one."""
    skip_to: int = 0
    """It owes no iteration before this one."""
    leases: list[Range] = []
    """Asynchronous modes: the samples of the iterations that it has leave for and has not reported."""
    stop_at: int | None = None
    """Asynchronous modes: where this worker ends."""
    pace_s: float = 0.0
    """Asynchronous modes: smoothed length of its iterations."""
    pieces: list[Piece] = []
    """Where the data are split: its samples of the iteration ``pieces_of``."""
    pieces_of: int = -1
    drawn: int = 0
    """So many of them were processed, which the splits do not know of yet."""
    counted: bool = False
    """The splits count all of them as processed already."""
    is_held: bool = False
    """It said that it stands, by orders with hold."""
    early: list[IterationReport | ProgressReport | Computed] = []
    """What it said of iterations that it has no leave for here; orders that were published may prove it right."""
    orders: Orders | None = None
    ceiling: int | None = None
    """The most samples that its memory holds at once, as far as it ran short of it."""
    parameters: int = 0
    """How many it has, by its hello."""
    own_samples: int = 0
    """How many samples it has of its own, by its hello; 0: it may draw any."""
    host: str = ""
    port: int = 0
    """Where the other workers of an all-reduce job find it."""


class Server(Process, kw_only=True):
    """A server's current life."""

    host: str = ""
    port: int = 0
    tensor_sizes: list[int] = []
    retiring: bool = False
    """It was told to end, since it holds nothing any more."""
    draining: bool = False
    """It gets no blocks any more, hands over those that it has, and is then to end."""
    generation: int = -1
    """The one that it follows, by its last report."""
    highest: int = 0
    """The highest version of its blocks, by its last report."""


class LeftOut(msgspec.Struct, kw_only=True):
    """A worker that somebody left out; while it still counts, it is about to leave."""

    reason: str
    """As the end of a sentence that begins with its name: "excluded by ada"."""
    after: int = -1
    """The last iteration that it had done when this was asked."""
    returns_slot: bool = False
    """Its slot is to be given back when its process has ended."""


class BlockMove(msgspec.Struct, kw_only=True):
    """One block on its way: ``state`` is one of ``moving.MoveState``."""

    source: int
    destination: int
    state: str


class PlacementChange(msgspec.Struct, kw_only=True):
    """A change of placement that was ordered and is not committed."""

    version: int
    """Of the placement that it leads to."""
    blocks: list[Block]
    """All of them, where they are to be."""
    moves: dict[int, BlockMove]
    """Those that move, by index."""
    freeze_at: int
    """The version of the values at which sources freeze them."""
    ordered_ms: int
    reason: str
    now_s: float | None = None
    predicted_s: float | None = None
    frozen_s: float = 0.0
    """The longest that a source took from freezing its blocks to their acknowledgement."""


class Revival(msgspec.Struct, kw_only=True):
    """A process that ended and is to be started again."""

    number: int
    due_ms: int
    wants_slot: bool = False
    """The scheduler was asked for a slot."""


class Checkpoint(msgspec.Struct, kw_only=True):
    """A state of the whole job that is kept: every block at version ``iteration``."""

    iteration: int
    position: int
    """The first position of the permutations that it had not processed."""
    stop_at: int | None = None
    dropped: int = 0
    """Asynchronous modes: samples that were handed out before it and are not in it."""
    is_start: bool = False
    """It is of the job that this one started from."""
    splits: bytes = b""
    """Where the data are split: the data policy's state before ``iteration``, encoded."""


class Refill(msgspec.Struct, kw_only=True):
    """Blocks of servers that were lost, and the workers' copies that they are to begin with."""

    number: int
    servers: list[int]
    lost: list[int]
    """Blocks that are not filled again."""
    asked: list[int]
    """Ranks of those who say what they have."""
    reason: str
    began_ms: int
    count: int
    """Of all blocks that it is about."""
    placed: bool = False
    """The new servers are here, and everybody was told of them."""
    copies: dict[int, dict[int, tuple[int, int]]] = {}
    """By rank and block: version and steps of its copy."""
    fills: dict[int, int] = {}
    """By block: whose copy it is."""
    version: int | None = None
    """The lowest of those chosen."""


class SlotRequest(msgspec.Struct, kw_only=True):
    """A slot for one more server was asked for."""

    index: int
    asked_ms: int


class PlacementTrial(msgspec.Struct, kw_only=True):
    """What a change of placement turns out to be worth."""

    version: int
    committed: int | None = None
    """The last iteration that was complete when it was committed."""
    took_s: float = 0.0
    """From the order to the commit, in which training went on."""
    before_s: float | None = None
    """What an exchange took under the placement before."""
    predicted_s: float | None = None
    paused_s: dict[int, float] = {}
    """By rank: how long blocks on their way held that worker up."""
    seconds: list[float] = []
    """What exchanges took since, one figure per iteration."""


class Job(msgspec.Struct, kw_only=True):
    """Everything that decisions about one job depend on, but for the policies' own states."""

    number: int
    spec: JobSpec | None = None
    salt: bytes = b""
    """What makes names of instances unguessable; empty: they are counted, and no more."""
    synchronization: Synchronization = Synchronization()
    """The choices that hold now: those of the spec, until somebody changes them."""
    state: JobState = JobState.SUBMITTED
    since_ms: int = 0
    awaited: str = ""
    """What was last said to be awaited in this state."""
    end_by_ms: int | None = None
    """When it ends, although a checkpoint that it waits for at its end is not whole; None: it waits for none."""
    workers: dict[int, Worker] = {}
    servers: dict[int, Server] = {}
    lives: dict[str, int] = {}
    """How many instances of each process there have been, by its title."""
    starting: dict[str, None] = {}
    """Titles of the processes that were ordered and have not said hello, in that order."""
    at_work: int = 0
    """How many workers live and have not reached the job's end."""
    revivals: dict[str, Revival] = {}
    """Those that are to be started again, by title."""
    short_lives: dict[str, int] = {}
    """How many lives in a row were short, by title; 1 too where the last was long."""
    restarts: dict[str, int] = {}
    """How often each was started again, by title."""
    join_at: int | None = None
    """Workers wait to join or to leave; in synchronous modes, before this iteration."""
    left_out: dict[int, LeftOut] = {}
    """Workers that are not to take part, by rank."""
    respread: str = ""
    """Why the blocks are to be laid over the servers anew, once one that was asked for is here; "": they are not."""
    pauses: dict[str, str] = {}
    """Why the job is paused: each cause with its reason. It goes on when there is none."""
    checkpoints: list[Checkpoint] = []
    """Those that can be returned to, the oldest first."""
    saving: dict[int, dict[int, SavedBlock]] = {}
    """What is written of checkpoints that are not whole: by iteration, the pieces by their start."""
    splits: dict[int, bytes] = {}
    """Where the data are split: what goes into coming checkpoints, by their iteration."""
    whole: WholeCheckpoint | None = None
    """One whose manifest is to be written."""
    saving_stage: str = ""
    """Asynchronous modes: "hold" while workers are to stand for a checkpoint, "save" while servers write it."""
    save_at: int | None = None
    saved_rounds: int = 0
    """Asynchronous modes: how many global batches had been handed out when the last one was begun."""
    restore: Restore | None = None
    """The checkpoint that the present lives began with."""
    refill: Refill | None = None
    refill_count: int = 0
    refills: dict[int, int] = {}
    """How often each block began again with a worker's copy."""
    is_rebuilding: bool = False
    """All processes begin anew, since a server was lost."""
    rebuild_ms: int = 0
    looked_ms: int = 0
    """When time passed last, by the log's clock."""
    away: list[int] = []
    """Agents that gave no sign of life lately, as of then."""

    incarnation: int = 0
    forgot: bool = False
    """Whether orders may have been given that this state does not know of: a part of the log was lost."""
    generation: int = 0
    sequence: int = 0
    """Of the last orders; rises over the job's whole life."""
    roster: list[int] = []
    first_iteration: int = 0
    """From which the present roster counts."""
    shares: dict[int, int] = {}
    """By rank, of everyone who counts."""
    offsets: dict[int, int] = {}
    is_short: bool = False
    """Limits forbid the present roster to share the whole global batch: the shares are those from before."""
    global_batch: int = 0
    """The present one, where it goes with the number of workers; 0: as the spec has it."""
    budget_s: float | None = None
    """Workers stop processing an iteration after so long."""
    ceilings: dict[int, int] = {}
    """With a budget: how many samples each may process, by rank."""
    share_from: int = 0
    origin_iteration: int = 0
    origin_position: int = 0
    budget_width: int = 0
    """With a budget: positions from one iteration to the next; 0: as many as the global batch."""
    processed: dict[int, int] = {}
    """Samples that were reported of synchronous iterations which are not complete, by iteration."""
    sample_count: int = 0
    """Of the training split."""
    completed: int = -1
    """The last iteration that every counting worker has reported."""
    behind: int = 0
    """How many counting workers have not reported the iteration after that one."""
    completed_ms: int = 0
    iteration_s: float = 0.0
    """Smoothed length of an iteration."""
    observed: dict[int, dict[int, Observation]] = {}
    """Observations of iterations that are not completed, by iteration and rank."""
    transfers: dict[int, list[Transfer]] = {}
    """Exchanges with servers in iterations that are not completed, by iteration."""

    cursor: int = 0
    """Asynchronous modes: the first position of the permutations that was not handed out."""
    dropped: int = 0
    """Samples that were handed out and will not be used: their worker died, or policies changed."""
    recent: dict[int, Observation] = {}
    """Asynchronous modes: the latest observation of each worker in this round."""
    recent_transfers: list[Transfer] = []
    """Asynchronous modes: the exchanges with servers in this round."""
    speed: float = 0.0
    """Asynchronous modes: samples per second of all workers together, as of the last round."""
    round_reports: int = 0
    """Reports since the last round, which takes as many as there are workers."""
    apply_from: int = 0
    """The first iteration under the present barrier."""
    skip_to: int = 0
    """Iterations before this one are not owed by anybody: the job became synchronous with it."""
    passed: dict[int, int] = {}
    """PSP by the letter: by rank, up to which iteration servers may apply its updates."""
    cut: int | None = None
    """A-BSP: the last iteration that was cut short."""
    quorums: dict[int, list[int]] = {}
    """Backup workers: who makes the iterations that are not complete, as far as they were named."""

    late: dict[int, int] = {}
    """By rank: how many updates came too late and were dropped."""
    late_until: dict[int, int] = {}
    """By rank: the last iteration of those. Each server says it, and each worker's updates come in order."""
    missing: dict[int, int] = {}
    """By rank: the last iteration that it was said to have left in the middle of."""

    pending: dict[str, Choice] = {}
    """Choices that hold once every worker stands."""
    hold_sequence: int | None = None
    """Every worker is to stand at its next boundary, by orders from this sequence on; None: they go on."""
    all_stand: bool = False
    """While they are to stand: they do, and it was said."""
    paused_ms: int = 0
    """How long the job was paused so far."""

    placement_version: int = 0
    blocks: list[Block] = []
    plans: int = 0
    """The highest version that any placement had or was to have."""
    known_servers: list[int] = []
    """Servers that workers were told of with the present placement."""
    change: PlacementChange | None = None
    trial: PlacementTrial | None = None
    exchange_s: float | None = None
    """What a worker's exchange with all servers, side by side, took in the last iteration."""
    probes: dict[int, int] = {}
    """Servers to be timed, and by how many bytes."""
    probe_round: int = 0
    prober: int | None = None
    """The rank of the worker that is to do it."""
    request: SlotRequest | None = None
    ask_again_ms: int = 0
    """There was no slot for another server: not before then is one asked for again."""
    shown_ms: int = 0
    """When the detector was last shown an iteration."""
    flags: dict[str, str] = {}
    """Open flags: from ``kind:subject:rank`` to the flag's name."""
    flag_count: int = 0

    running_ms: int | None = None
    stop_at: int | None = None
    stop_reason: str = ""
    model_saved: bool = False
    """Whether a worker has saved the final parameters."""
    resumed_ms: int = 0
    """When the control plane last came back from a silence."""
    holds_slots: bool = False

    @property
    def live_workers(self) -> list[Worker]:
        """Workers whose life has not ended, by rank."""
        return [worker for _, worker in sorted(self.workers.items()) if not worker.over]

    @property
    def live_servers(self) -> list[Server]:
        """Servers whose life has not ended, by index."""
        return [server for _, server in sorted(self.servers.items()) if not server.over]

    @property
    def live_processes(self) -> list[Process]:
        """All of them, workers first."""
        return [*self.live_workers, *self.live_servers]

    def instance_name(self, title: str, life: int) -> str:
        """What that life of the process is called."""
        return instance_name(self.salt, title, self.incarnation, life)

    def counts(self, rank: int) -> bool:
        """Whether that worker is in the roster."""
        return rank in self.shares

    @property
    def batch(self) -> int:
        """Samples per iteration over all who count."""
        assert self.spec is not None
        return self.global_batch or self.spec.global_batch

    @property
    def width(self) -> int:
        """Positions from one synchronous iteration to the next."""
        return self.budget_width or self.batch

    def process(self, role: Role, index: int) -> Process | None:
        """The current life of that process, if there ever was one."""
        return self.workers.get(index) if role == "worker" else self.servers.get(index)


class Snapshot(msgspec.Struct, kw_only=True):
    """What is written: the records, the policies' states, and the cursor that they stand for."""

    version: int = SNAPSHOT_VERSION
    cursor: str
    deadline_ms: int | None
    job: Job
    policies: dict[str, msgspec.Raw]


_decoder: msgspec.msgpack.Decoder[Snapshot] = msgspec.msgpack.Decoder(Snapshot)


def read_snapshot(data: bytes) -> Snapshot:
    """The snapshot in ``data``.

    Raises:
        SnapshotVersionError: if it was written by a release with other records, or cannot be read.
    """
    try:
        version = msgspec.msgpack.decode(data, type=dict[str, Any]).get("version")
        if version != SNAPSHOT_VERSION:
            raise SnapshotVersionError(f"snapshot has version {version}, this release reads {SNAPSHOT_VERSION}")
        return _decoder.decode(data)
    except msgspec.DecodeError as error:
        raise SnapshotVersionError(f"snapshot of version {SNAPSHOT_VERSION} cannot be read: {error}") from None
