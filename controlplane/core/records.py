"""Single records of the engine's state besides its processes: moving blocks, checkpoints, restarts, attached jobs."""

import math
from typing import Final

import msgspec

from controlplane.protocol.messages import IterationReport, Place
from controlplane.protocol.orders import Block
from controlplane.protocol.spec import Synchronization

VERSIONS: Final = 1_000_000
"""Share versions begin at this multiple of the incarnation, so that they increase even if part of the log is lost."""

LIVES_KEPT: Final = 8
"""By rank: earlier instances that are known to have ended."""


class LeftOut(msgspec.Struct, kw_only=True):
    """A worker that a user excluded or drained; it may count until its next boundary."""

    reason: str
    """As the end of a sentence that begins with its name: "excluded by ada"."""
    after: int = -1
    """The last iteration that it had finished at the time of the request."""
    returns_slot: bool = False
    """Its slot should be released when its process has ended."""


class BlockMove(msgspec.Struct, kw_only=True):
    """One moving block: ``state`` is one of ``placing.MoveState``."""

    source: int
    destination: int
    state: str


class PlacementChange(msgspec.Struct, kw_only=True):
    """A change of placement that was ordered and is not committed."""

    version: int
    """The version of the new placement."""
    blocks: list[Block]
    """All blocks in the new placement."""
    moves: dict[int, BlockMove]
    """The blocks that move, by index."""
    freeze_at: int
    """The version of the values at which sources freeze them."""
    ordered_ms: int
    reason: str
    now_s: float | None = None
    predicted_s: float | None = None
    frozen_s: float = 0.0
    """The longest time at any source from freezing its blocks to their acknowledgement."""


class Revival(msgspec.Struct, kw_only=True):
    """A process that ended and should be started again."""

    number: int
    due_ms: int
    wants_slot: bool = False
    """The scheduler was asked for a slot."""


class Checkpoint(msgspec.Struct, kw_only=True):
    """A checkpoint of the whole job: every block at version ``iteration``."""

    iteration: int
    position: int
    """The first position of the permutations that is not part of it."""
    stop_at: int | None = None
    dropped: int = 0
    """Asynchronous modes: samples that were handed out before it and are not part of it."""
    is_start: bool = False
    """It belongs to the job that this one started from."""
    splits: bytes = b""
    """With split data: the data policy's state before ``iteration``, encoded."""


class Refill(msgspec.Struct, kw_only=True):
    """Blocks of lost servers, and the workers' copies that replace them."""

    number: int
    servers: list[int]
    lost: list[int]
    """Blocks that are still missing."""
    reporting: list[int]
    """Ranks that should report their copies."""
    reason: str
    began_ms: int
    count: int
    """The number of all blocks of this refill."""
    placed: bool = False
    """The new servers are connected, and all processes were sent their addresses."""
    copies: dict[int, dict[int, tuple[int, int]]] = {}
    """By rank and block: version and number of steps of the copy."""
    fills: dict[int, int] = {}
    """By block: the rank whose copy is used."""
    version: int | None = None
    """The lowest version among the chosen copies."""


class SlotRequest(msgspec.Struct, kw_only=True):
    """A request for a slot for one more server."""

    index: int
    requested_ms: int


class PlacementTrial(msgspec.Struct, kw_only=True):
    """The measured effect of a change of placement."""

    version: int
    committed: int | None = None
    """The last complete iteration at the commit."""
    took_s: float = 0.0
    """Time from order to commit; training continued meanwhile."""
    before_s: float | None = None
    """The time of an exchange under the previous placement."""
    predicted_s: float | None = None
    paused_s: dict[int, float] = {}
    """By rank: how long the moves delayed the worker."""
    seconds: list[float] = []
    """Exchange times since the commit, one per iteration."""


class Piloted(msgspec.Struct, kw_only=True):
    """An autopilot's input, and its requests."""

    samples: int = 0
    """Samples in all reports."""
    counted: int = 0
    """Of these, the samples in global batches that were passed to the autopilot."""
    batches: int = 0
    present: Synchronization | None = None
    """The policies that it knows of."""
    since: int = 0
    """The first iteration under these policies."""
    chosen: str = ""
    """The policies that it requested, until they take effect."""


class Tally(msgspec.Struct, kw_only=True):
    """Samples and their training losses."""

    samples: int = 0
    """Samples in all reports since the job began or was rolled back."""
    pending: int = 0
    """Samples that are not yet in a global batch; includes those of skipped updates."""
    spoilt: int = 0
    """Of these, samples whose loss is NaN."""
    loss: float = 0.0
    """The sum of the others' training losses."""

    def add(self, report: IterationReport, share: int) -> None:
        """Add a worker's report; ``share``: its samples if it skipped its update."""
        self.samples += report.samples
        if report.spoilt:
            self.pending += share
            self.spoilt += share
        else:
            self.pending += report.samples
            self.loss += report.samples * report.loss


class Guarded(Tally, kw_only=True):
    """The input of a guard of convergence."""

    unfinished: dict[int, Tally] = {}
    """With ``fill``: tallies of iterations that not all ranks have reported; a larger batch may begin with one of them.
    """
    present: Synchronization | None = None
    """The policies that it knows of."""
    before: Synchronization | None = None
    """While a change is judged: the policies before it."""
    batch: int = 0
    """The global batch that it knows of; 0 if none yet."""
    smaller: int = 0
    """While a larger global batch is judged: the one before it grew."""

    def of_iteration(self, iteration: int) -> Tally:
        """The tally of an iteration until all ranks have reported it."""
        return self.unfinished.setdefault(iteration, Tally())

    def finish(self, completed: int) -> None:
        """All ranks have reported the iterations up to that one."""
        for iteration in sorted(number for number in self.unfinished if number <= completed):
            each = self.unfinished.pop(iteration)
            self.samples += each.samples
            self.pending += each.pending
            self.spoilt += each.spoilt
            self.loss += each.loss

    def take_batch(self) -> float:
        """Take the pending samples and return their mean loss; infinite if the loss of half of them is NaN."""
        finite = self.pending - self.spoilt
        mean = self.loss / finite if finite > self.spoilt else math.inf
        self.pending, self.spoilt, self.loss = 0, 0, 0.0
        return mean


class ScriptProcess(msgspec.Struct, kw_only=True):
    """The process of one rank, of a script that agents start."""

    agent: int
    slot: int
    host: str
    """The address of its machine."""
    instance: str = ""
    """Empty before its first start there."""
    runs: bool = False
    """It was ordered, and its end was not reported."""
    wants_slot: bool = False


class Scripts(msgspec.Struct, kw_only=True):
    """The script of an attached job that agents start."""

    processes: dict[int, ScriptProcess] = {}
    """By rank; empty if another launcher starts the ranks, or before slots are reserved."""
    attempt: int = 0
    """How often all were started."""
    started_ms: int = 0
    restarts: int = 0
    short: int = 0
    """How many attempts in a row were short."""
    status: int = 0
    failure: str = ""
    """The first failure of this attempt, with the status of that process; empty: none."""
    is_stopping: bool = False
    """Whether the others were requested to end because of it."""
    due_ms: int | None = None
    """When to act: ends were not reported, or it is time to start again. None: never."""

    @property
    def running(self) -> dict[int, ScriptProcess]:
        """Processes that have not ended, by rank."""
        return {rank: each for rank, each in sorted(self.processes.items()) if each.runs}


class Attachment(msgspec.Struct, kw_only=True):
    """State of attached jobs only: shares, ranks that do not report, the growing batch, and the requested end."""

    version: int = 0
    """Version of the shares."""
    past: dict[int, list[str]] = {}
    """Replaced instances by rank, the oldest first."""
    waits_since_ms: int | None = None
    """When the job began to wait for ranks; None if it is not waiting."""
    launcher_seen_ms: int = 0
    """When its launcher last renewed the job's lease."""
    stalled_at: int = -1
    """The stalled iteration, the latest that a rank reported; -1 if none is stalled."""
    stalled: dict[int, Place] = {}
    """The reported activity of stalled ranks, by rank."""
    stalled_in: dict[int, int] = {}
    """The iteration of each stalled rank: a rank that hangs after the all-reduce is one behind those that wait for it.
    """
    ends: dict[int, int] = {}
    """By iteration that not all ranks have reported: the furthest reported position in the permutations."""
    begins: dict[int, int] = {}
    """Start positions in the permutations of the last complete iteration and the next one, as far as reported."""
    fill_batch: int = 0
    """Requested global batch of the ranks from their next pass on; 0: unchanged."""
    most_batch: int = 0
    """With ``fill``: upper bound of the global batch, set when the guard found a larger one harmful; 0 if none."""
    may_fill: bool = False
    """Whether every rank scales its learning rate with the batch."""
    room: dict[int, int] = {}
    """With ``fill``, by rank: the largest share that should fit into its memory."""
    noise: dict[int, float] = {}
    """With ``fill``, by rank: the last reported gradient-noise scale."""
    ends_as: str = ""
    """The job's final state, set once its ranks have stopped or timed out."""

    def next_version(self, incarnation: int) -> int:
        """Take a new version because shares change."""
        self.version = max(self.version, incarnation * VERSIONS) + 1
        return self.version

    def note_end(self, iteration: int, end: int) -> None:
        """A rank has reported an iteration whose samples end at that position."""
        self.ends[iteration] = max(end, self.ends.get(iteration, 0))

    def complete(self, iteration: int) -> None:
        """All ranks have reported it, so its start and end positions are known."""
        if iteration in self.ends:
            kept = {iteration: self.begins[iteration]} if iteration in self.begins else {}
            self.begins = {**kept, iteration + 1: self.ends[iteration]}
            self.ends = {number: end for number, end in self.ends.items() if number > iteration}

    def end_lost(self, rank: int, instance: str) -> None:
        """An earlier instance of a rank was replaced."""
        self.past[rank] = [*self.past.get(rank, []), instance][-LIVES_KEPT:]

    def is_past(self, rank: int, instance: str) -> bool:
        """Whether that instance was replaced by another process."""
        return instance in self.past.get(rank, ())
