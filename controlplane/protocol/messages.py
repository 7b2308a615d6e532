"""Messages from workers, servers and agents to the control plane.

Every message except heartbeats has a ``number``, counted from 1 within one process instance. The sender keeps it until
the ``Durable`` number has passed it, and resends it after a reconnect.
"""

from typing import Annotated, Literal

from msgspec import Meta

from controlplane.protocol.base import (
    MAX_INT32,
    Count,
    Count32,
    Finite,
    Fraction,
    Host,
    Labels,
    Name,
    Port,
    Positive,
    Positive32,
    Seconds,
    Status,
    Text,
    Value,
    Word,
)
from controlplane.protocol.checkpoints import FoundCheckpoint, SavedBlock
from controlplane.protocol.machine_tests import PreflightAnswer
from controlplane.protocol.measurements import MachineNumbers, WorkerNumbers
from controlplane.protocol.orders import Role
from controlplane.protocol.spec import MAX_WORKERS, Emulation
from controlplane.protocol.text import NO_NUL, PLAIN


class WorkerHello(Value, frozen=True, kw_only=True, tag="worker-hello"):
    """The first message of a worker process on each connection: answered with current orders."""

    number: Positive
    parameter_count: Positive
    sample_count: Positive
    """Samples of the training split that the worker can draw from."""
    own_samples: Count = 0
    """The samples that only this worker draws, if the job divides them; 0: it may draw any."""
    host: Host = ""
    port: Annotated[int, Meta(ge=0, le=65_535)] = 0
    """The port for other workers of an all-reduce job; 0: none."""
    release: Word = ""
    """Of the worker's software; empty: not known."""
    initial: Word = ""
    """A checksum of version 0 of the parameters, if every worker computes it."""
    found: list[FoundCheckpoint] = []
    """Checkpoints that the job can start from, if its workers hold the parameters."""
    skipped: list[Text] = []
    """Why other checkpoints cannot be used."""


class RankHello(Value, frozen=True, kw_only=True, tag="rank-hello"):
    """The first message of an attached rank on each connection: answered with current orders."""

    number: Positive
    rank: Count32
    world: Annotated[int, Meta(ge=1, le=MAX_WORKERS)]
    """Number of ranks that its launcher has started."""
    batch_size: Positive32
    """Batch size of one rank with equal shares: the global batch is ``world`` times this."""
    sample_count: Count = 0
    """Samples of one pass; 0: not known, as for an iterable dataset."""
    multiple: Positive32 = 1
    """Its shares should be multiples of this many samples."""
    iteration: Count32 | None = None
    """The next iteration that it starts; None: a loop without saved state continues at the job's position."""
    position: Count | None = None
    """Position in the job's permutations at which that iteration begins, if the loop knows it."""
    prefetched: Annotated[int, Meta(ge=-1, le=MAX_INT32)] = -1
    """The last iteration whose samples its loader has yielded."""
    micro_batch: Positive32 | None = None
    """Samples of one step of gradient accumulation, if it accumulates."""
    scales_lr: bool = False
    """Whether the script scales its learning rate with the global batch."""
    host: Host = ""
    device: Word = ""
    launcher: Word = ""
    """The launcher: torchrun, slurm, mpirun, ..."""
    pid: Count32 = 0
    release: Word = ""
    """Of its Paceline; empty: not known."""
    environment: Labels = {}
    """Further information for display, by name."""


MAX_LOGGED = 32
"""Maximum number of series that an attached script may log in addition to its loss."""


class Exchanged(Value, frozen=True, kw_only=True, array_like=True, gc=False):
    """Duration of one iteration's exchange with one server, without the time for which the server waited for others."""

    server: Count32
    bytes: Count
    """Parameters in bytes, each pulled and pushed once."""
    push_s: Seconds
    pull_s: Seconds
    is_probe: bool = False
    """A small transfer made only to be timed."""

    @property
    def seconds(self) -> float:
        """In both directions."""
        return self.push_s + self.pull_s


class BlockExchanged(Value, frozen=True, kw_only=True, array_like=True, gc=False):
    """Mean duration of the exchange of one block, over the exchanges since the last report of blocks."""

    block: Count32
    server: Count32
    bytes: Count
    push_s: Seconds
    pull_s: Seconds
    """From the previous reply to its own; without the time for which the server waited for others."""
    exchanges: Positive


class IterationReport(WorkerNumbers, frozen=True, kw_only=True, tag="report", gc=False):
    """Measurements of one worker in one iteration, and details of the iteration."""

    number: Positive
    generation: Count32
    iteration: Count32
    position: Count
    """Position of the samples in the job's permutations."""
    spoilt: Word = ""
    """The loss if it, or its gradient, is not finite (``nan``, ``inf``): the update was
    dropped, and ``samples`` is 0.
    """
    overran: bool = False
    """An emulated machine could not keep its stated speed in this iteration."""
    ceiling: Positive32 | None = None
    """The largest number of samples that fits into its device's memory, once it has run out of memory."""
    exchanges: list[Exchanged] = []
    """With each server. They run in parallel, so their sum exceeds ``push_s + pull_s``."""
    blocks: list[BlockExchanged] = []
    """For each block, about once a second."""
    moving_s: Seconds = 0.0
    """Part of ``waiting_s``: for blocks that were moving from one server to another."""
    sampled: dict[Count32, Count32] = {}
    """If workers sample their peers: the sampled ones, and how many iterations each had finished as far as known."""
    questions: Count32 = 0
    """If workers sample their peers: number of requests sent."""
    unanswered: Annotated[list[Count32], Meta(max_length=MAX_WORKERS)] = []
    """If workers sample their peers: those that have not responded for so long that the worker
    continues without them.
    """
    logged: Annotated[dict[Word, Finite], Meta(max_length=MAX_LOGGED)] = {}
    """Values that an attached script logs in addition to its loss, by name."""


class Evaluation(Value, frozen=True, kw_only=True, tag="evaluation"):
    """The score of one version of the parameters (after ``iteration`` updates) on the held-out split."""

    number: Positive
    iteration: Count32
    loss: Finite | None
    """None: it was not finite."""
    accuracy: Fraction | None
    samples: Positive32
    seconds: Seconds


class WorkerFinished(Value, frozen=True, kw_only=True, tag="worker-finished"):
    """The worker reached ``stop_at``; ``model_saved``: it uploaded the final parameters."""

    number: Positive
    iteration: Count32
    model_saved: bool = False


class ProgressReport(Value, frozen=True, kw_only=True, tag="progress"):
    """Number of samples of an iteration that are processed so far; sent each ``Orders.progress_s`` while computing.

    With ``samples_done`` equal to the share it is the synchronisation request of A-BSP Alg. 1.
    """

    number: Positive
    generation: Count32
    iteration: Count32
    samples_done: Count32


class Computed(Value, frozen=True, kw_only=True, tag="computed"):
    """An update is ready to be pushed; sent before the push if ``Orders.announce`` is set."""

    number: Positive
    generation: Count32
    iteration: Count32
    samples: Count32


class MicroBatch(Value, frozen=True, kw_only=True, tag="micro-batch"):
    """Size of the micro-batches for work that may be cut short: the smallest with a low overhead."""

    number: Positive
    samples: Positive32
    whole: Positive32
    """The batch size that it was compared with."""
    overhead: Finite
    """Measured overhead of computing in such pieces, as a fraction of the time in one piece."""


class Quiesced(Value, frozen=True, kw_only=True, tag="held"):
    """The worker has stopped before ``iteration`` by orders with ``hold``, whose ``sequence`` it names."""

    number: Positive
    generation: Count32
    iteration: Count32
    sequence: Count


class Copies(Value, frozen=True, kw_only=True, array_like=True):
    """Blocks of which a worker has a complete copy, all pulled at this version, after this many steps."""

    version: Count32
    steps: Count
    blocks: list[Count32]


class CopiesHeld(Value, frozen=True, kw_only=True, tag="copies-held"):
    """The worker's copies of the blocks in ``Orders.lost``; it will not pull those blocks any more."""

    number: Positive
    refill: Positive32
    """``Orders.refill`` of the orders that requested it."""
    copies: list[Copies]


class Heartbeat(Value, frozen=True, kw_only=True, tag="heartbeat"):
    """A process is alive: sent each second, or a little more than a second after a message; not numbered, not kept.

    Earlier releases sent the load of the machine, which is not read.
    """

    cpu: Fraction = 0.0
    memory: Fraction = 0.0


Place = Literal["data", "compute", "sum", "outside"]
"""What a rank is doing: waiting for its next batch, computing, waiting in the gradient sum, or none of these."""


class Stalled(Value, frozen=True, kw_only=True, tag="stalled"):
    """A rank's iteration takes much longer than usual; repeated while it does."""

    number: Positive
    iteration: Count32
    place: Place
    open_s: Seconds
    usual_s: Seconds


class ServerHello(Value, frozen=True, kw_only=True, tag="server-hello"):
    """The first message of a server, which listens. Sizes are those of the workload's tensors in order, in elements."""

    number: Positive
    host: Host
    port: Port
    tensor_sizes: list[Positive]
    found: list[FoundCheckpoint] = []
    """Checkpoints that the job can start from."""
    skipped: list[Text] = []
    """Why other checkpoints cannot be used."""
    release: Word = ""
    """Of the server's software; empty: not known."""
    initial: Word = ""
    """A checksum of version 0 of the parameters, if several servers compute it from the module as built."""


class ServerReport(Value, frozen=True, kw_only=True, tag="server-report"):
    """A server's work since its last report."""

    number: Positive
    iteration: Count32
    """The lowest version of its blocks: the number of completed iterations. In asynchronous modes, one past the latest
    iteration with a contribution.
    """
    highest: Count32 = 0
    """The highest version of its blocks."""
    generation: Count32 = 0
    """The generation of its roster at that time."""
    bytes_in: Count
    bytes_out: Count
    busy_s: Seconds
    missing: list[tuple[Count32, Count32]] = []
    """(iteration, rank) of members that left before they had contributed to all blocks."""
    late: list[tuple[Count32, Count32]] = []
    """(iteration, rank) of updates that were dropped, since others were named for their iteration (backup workers)."""


class BlocksHanded(Value, frozen=True, kw_only=True, tag="blocks-handed"):
    """Blocks that this server froze for the next placement, and that their new servers have acknowledged."""

    number: Positive
    placement: Positive32
    """The version of the next placement."""
    blocks: list[Count32]
    bytes: Count = 0
    """Bytes sent for them: values, optimizer state, partial sums."""
    seconds: Seconds = 0.0
    """From the first freeze to the last acknowledgement."""
    failure: Text = ""
    """Why they could not be handed over; then none of them is."""


class BlocksFilled(Value, frozen=True, kw_only=True, tag="blocks-filled"):
    """Blocks that the server was to restore from a worker's copy, and now has."""

    number: Positive
    blocks: list[Count32]


class CheckpointSaved(Value, frozen=True, kw_only=True, tag="checkpoint-saved"):
    """A server, or the worker that saves checkpoints, has written blocks of a checkpoint or
    its manifest, or failed to.
    """

    number: Positive
    iteration: Count32
    pieces: list[SavedBlock] = []
    is_whole: bool = False
    """The manifest is written: the checkpoint can be restored."""
    failure: Text = ""
    is_spoilt: bool = False
    """The parameters are not finite: no further checkpoint can be saved."""


class FolderApart(Value, frozen=True, kw_only=True, tag="folder-apart"):
    """The sender's checkpoint folder cannot be used, or is not the one of the other processes that need it."""

    number: Positive
    reason: Text


class RestoreFailed(Value, frozen=True, kw_only=True, tag="restore-failed"):
    """The sender cannot restore the checkpoint in its orders."""

    number: Positive
    iteration: Count32
    reason: Text


MAX_SLOTS = 1_024
"""Maximum number of worker slots, and of server slots, of one machine."""

ShortText = Annotated[str, Meta(max_length=1_000, pattern=NO_NUL)]
"""A machine's description, for users."""


class SlotOffer(Value, frozen=True, kw_only=True):
    """One worker slot of a machine."""

    emulate: Emulation | None = None


class ProcessName(Value, frozen=True, kw_only=True):
    """One instance of a process of a job."""

    job: Positive
    role: Role
    index: Count32
    instance: Name


class Environment(Value, frozen=True, kw_only=True):
    """The environment of a machine's processes, as text for display; unknown values are empty."""

    python: ShortText = ""
    torch: ShortText = ""
    platform: ShortText = ""
    """Operating system, its release, and the processor's architecture."""
    cpu: ShortText = ""
    """The processor's model."""
    device: Annotated[str, Meta(max_length=10_000, pattern=NO_NUL)] = ""
    """The device that workers compute on, with the GPU models that the driver reports."""
    network: ShortText = ""
    """How parameters travel to and from servers on the machine: ``TLS 1.3``, or ``not encrypted`` and why not."""


class AgentHello(Value, frozen=True, kw_only=True, tag="agent-hello"):
    """The first message of an agent's connection: its slots and running processes."""

    number: Positive
    name: Name
    version: Annotated[str, Meta(max_length=100, pattern=PLAIN)]
    host: Host
    """The address at which workers on other machines reach servers on this one."""
    slots: Annotated[list[SlotOffer], Meta(max_length=MAX_SLOTS)]
    server_slots: Annotated[int, Meta(ge=0, le=MAX_SLOTS)]
    labels: Labels
    cpu_count: Annotated[int, Meta(ge=1, le=2**20)]
    memory_bytes: Annotated[int, Meta(ge=1, le=2**60)]
    environment: Environment = Environment()
    """Older agents do not send it."""
    running: Annotated[list[ProcessName], Meta(max_length=4 * MAX_SLOTS)] = []
    rotates: bool = False
    """Whether it supports ``CredentialIssued``; agents of earlier releases do not."""
    tests: bool = False
    """Whether it supports ``MachineTestOrder`` and ``ListenOrder``; agents of earlier releases do not."""
    testing: Annotated[list[Positive], Meta(max_length=100)] = []
    """Tests in progress, whose result is still pending."""
    scripts: bool = False
    """Whether it starts scripts of jobs."""


class ProcessStarted(Value, frozen=True, kw_only=True, tag="process-started"):
    """A process that the agent was ordered to start is running."""

    number: Positive
    process: ProcessName
    pid: Positive32


class ProcessEnded(Value, frozen=True, kw_only=True, tag="process-ended"):
    """A process ended: its exit status (negative: the signal), and the last lines of its standard error."""

    number: Positive
    process: ProcessName
    status: Status
    tail: Text = ""
    out_of_memory: bool = False
    """It was killed while the kernel killed processes of its machine for lack of memory."""


class CredentialKept(Value, frozen=True, kw_only=True, tag="credential-kept"):
    """The agent has stored its new credential and authenticates with it from now on; or it could not store it."""

    number: Positive
    digest: Annotated[str, Meta(min_length=64, max_length=64, pattern=NO_NUL)]
    """Of the secret, by ``secret_digest``."""
    failure: Text = ""
    """Why it could not store it and continues with the old one; empty: it stored it."""


LineLevel = Literal["debug", "info", "output", "warning", "error"]
"""Of a log line; ``output`` is any other line that a process wrote."""

MAX_LINE = 2_000
MAX_LINES = 100


class Line(Value, frozen=True, kw_only=True):
    """One line of a process's log or output, without secrets."""

    level: LineLevel
    text: Annotated[str, Meta(max_length=MAX_LINE, pattern=NO_NUL)]


class LogLines(Value, frozen=True, kw_only=True, tag="log-lines"):
    """Output of a process of the agent; not numbered, not kept. ``dropped`` lines before these were discarded."""

    process: ProcessName
    lines: Annotated[list[Line], Meta(max_length=MAX_LINES)]
    dropped: Count = 0


class AgentHeartbeat(MachineNumbers, frozen=True, kw_only=True, tag="agent-heartbeat"):
    """The machine's load, each second; not numbered, not kept."""


class Refresh(Value, frozen=True, kw_only=True, tag="refresh"):
    """A page requests what it missed after ``since``."""

    since: Count = 0


WorkerMessage = (
    WorkerHello
    | IterationReport
    | ProgressReport
    | Computed
    | MicroBatch
    | Quiesced
    | CopiesHeld
    | Evaluation
    | WorkerFinished
    | CheckpointSaved
    | FolderApart
    | RestoreFailed
    | Heartbeat
)
RankMessage = RankHello | IterationReport | Evaluation | Quiesced | Stalled | WorkerFinished | Heartbeat
"""The messages of an attached rank."""

ServerMessage = (
    ServerHello | ServerReport | BlocksHanded | BlocksFilled | CheckpointSaved | FolderApart | RestoreFailed | Heartbeat
)
AgentMessage = AgentHello | ProcessStarted | ProcessEnded | CredentialKept | PreflightAnswer | AgentHeartbeat | LogLines
