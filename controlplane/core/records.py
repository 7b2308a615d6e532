"""Single records of the engine's state: processes, moving blocks, checkpoints, restarts.

Each instance of a process is one record. A restarted process gets a new record, so no state of the earlier instance is
left in it.
"""

import msgspec

from controlplane.core.attachment import Rank
from controlplane.core.states import PROCESS_OVER, ProcessState
from controlplane.protocol.checkpoints import FoundCheckpoint
from controlplane.protocol.messages import Computed, IterationReport, ProgressReport
from controlplane.protocol.orders import Block, Orders, Piece, Range, Role
from controlplane.protocol.spec import Emulation


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


class LeftOut(msgspec.Struct, kw_only=True):
    """A worker that a user excluded or drained; while it still counts, it is about to leave."""

    reason: str
    """As the end of a sentence that begins with its name: "excluded by ada"."""
    after: int = -1
    """The last iteration that it had done when this was asked."""
    returns_slot: bool = False
    """Its slot should be given back when its process has ended."""


class BlockMove(msgspec.Struct, kw_only=True):
    """One moving block: ``state`` is one of ``moving.MoveState``."""

    source: int
    destination: int
    state: str


class PlacementChange(msgspec.Struct, kw_only=True):
    """A change of placement that was ordered and is not committed."""

    version: int
    """Of the placement that it leads to."""
    blocks: list[Block]
    """All of them, where they should be."""
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
    """A process that ended and should be started again."""

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
    """Blocks of lost servers, and the workers' copies that replace them."""

    number: int
    servers: list[int]
    lost: list[int]
    """Blocks that are not filled again."""
    reporting: list[int]
    """Ranks that are to report their copies."""
    reason: str
    began_ms: int
    count: int
    """Of all blocks that it is about."""
    placed: bool = False
    """The new servers are connected, and all processes were sent their addresses."""
    copies: dict[int, dict[int, tuple[int, int]]] = {}
    """By rank and block: version and steps of its copy."""
    fills: dict[int, int] = {}
    """By block: whose copy it is."""
    version: int | None = None
    """The lowest of those chosen."""


class SlotRequest(msgspec.Struct, kw_only=True):
    """A slot for one more server was asked for."""

    index: int
    requested_ms: int


class PlacementTrial(msgspec.Struct, kw_only=True):
    """The measured effect of a change of placement."""

    version: int
    committed: int | None = None
    """The last iteration that was complete when it was committed."""
    took_s: float = 0.0
    """From the order to the commit, in which training went on."""
    before_s: float | None = None
    """What an exchange took under the placement before."""
    predicted_s: float | None = None
    paused_s: dict[int, float] = {}
    """By rank: how long moving blocks delayed that worker."""
    seconds: list[float] = []
    """What exchanges took since, one figure per iteration."""
