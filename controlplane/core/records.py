"""Single records of the engine's state besides its processes: moving blocks, checkpoints, restarts, attached jobs."""

import math
from typing import Final

import msgspec

from controlplane.protocol.messages import IterationReport, Place
from controlplane.protocol.orders import Block
from controlplane.protocol.spec import Synchronization

VERSIONS: Final = 1_000_000
"""Share versions restart at this multiple of the incarnation, so that they increase even if part of the log is lost."""

LIVES_KEPT: Final = 8
"""By rank: earlier instances that are known to have ended."""


class LeftOut(msgspec.Struct, kw_only=True):
    """A worker that a user excluded or drained; while it still counts, it is about to leave."""

    reason: str
    """As the end of a sentence that begins with its name: "excluded by ada"."""
    after: int = -1
    """The last iteration that it had done when this was asked."""
    returns_slot: bool = False
    """Its slot should be given back when its process has ended."""


class BlockMove(msgspec.Struct, kw_only=True):
    """One moving block: ``state`` is one of ``placing.MoveState``."""

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
    """From the order to the commit, in which training continued."""
    before_s: float | None = None
    """The time of an exchange under the previous placement."""
    predicted_s: float | None = None
    paused_s: dict[int, float] = {}
    """By rank: how long moving blocks delayed that worker."""
    seconds: list[float] = []
    """The times of exchanges since, one per iteration."""


class Piloted(msgspec.Struct, kw_only=True):
    """An autopilot's input, and its requests."""

    samples: int = 0
    """Of all reports."""
    counted: int = 0
    """Of these, what makes the global batches that it was shown."""
    batches: int = 0
    present: Synchronization | None = None
    """The policies that it knows of."""
    since: int = 0
    """The iteration from which on they hold."""
    chosen: str = ""
    """The policies that it asked for, until they take effect."""


class Tally(msgspec.Struct, kw_only=True):
    """Samples and their training losses."""

    samples: int = 0
    """Of all reports since the job began, or went back to a checkpoint."""
    pending: int = 0
    """Samples not in a global batch yet, with those of skipped updates."""
    spoilt: int = 0
    """Of these, samples whose loss is not a number."""
    loss: float = 0.0
    """The sum of the others' training losses."""

    def add(self, report: IterationReport, share: int) -> None:
        """A worker has processed samples; ``share``: how many it was given, where it skipped its update."""
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
    """With ``fill``: iterations that not all ranks have reported. They may be the first with a larger batch."""
    present: Synchronization | None = None
    """The policies that it knows of."""
    before: Synchronization | None = None
    """While a change is judged: the policies before it."""
    batch: int = 0
    """The global batch that it knows of; 0: none yet."""
    smaller: int = 0
    """While a larger global batch is judged: the one before it grew."""

    def of_iteration(self, iteration: int) -> Tally:
        """Where its reports are added until all ranks have reported it."""
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
        """The mean loss over what is pending, which is none any more; infinite if half of it has none."""
        finite = self.pending - self.spoilt
        mean = self.loss / finite if finite > self.spoilt else math.inf
        self.pending, self.spoilt, self.loss = 0, 0, 0.0
        return mean


class Attachment(msgspec.Struct, kw_only=True):
    """State of attached jobs only: shares, ranks that do not report, the growing batch, and the requested end."""

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
    """The reported activity of stalled ranks, by rank."""
    stalled_in: dict[int, int] = {}
    """In which iteration: a rank that hangs after the sum is one behind those that wait for it."""
    ends: dict[int, int] = {}
    """Of iterations that not all ranks have reported: the furthest position in the permutations that one reached."""
    begins: dict[int, int] = {}
    """Where the last complete iteration and the next one begin in the permutations, as far as reports say."""
    fill_batch: int = 0
    """Samples of one iteration that the ranks are asked to take from their next pass on; 0: as many as now."""
    most_batch: int = 0
    """With ``fill``: it grows no further than that, since the guard found that a larger one harms; 0: no such bound."""
    may_fill: bool = False
    """Whether the learning rate of every rank follows the batch."""
    room: dict[int, int] = {}
    """With ``fill``, by rank: the share for which its memory is taken to suffice."""
    noise: dict[int, float] = {}
    """With ``fill``, by rank: the gradient-noise scale that it reported last."""
    ends_as: str = ""
    """The job's final state, set once its ranks have stopped or timed out."""

    def next_version(self, incarnation: int) -> int:
        """Of shares that change now."""
        self.version = max(self.version, incarnation * VERSIONS) + 1
        return self.version

    def note_end(self, iteration: int, end: int) -> None:
        """A rank has reported an iteration, with its samples up to that position."""
        self.ends[iteration] = max(end, self.ends.get(iteration, 0))

    def complete(self, iteration: int) -> None:
        """All have reported it: where it begins and ends is known."""
        if iteration in self.ends:
            kept = {iteration: self.begins[iteration]} if iteration in self.begins else {}
            self.begins = {**kept, iteration + 1: self.ends[iteration]}
            self.ends = {number: end for number, end in self.ends.items() if number > iteration}

    def end_lost(self, rank: int, instance: str) -> None:
        """Another process has taken its rank."""
        self.past[rank] = [*self.past.get(rank, []), instance][-LIVES_KEPT:]

    def is_past(self, rank: int, instance: str) -> bool:
        """Whether another process has replaced its rank."""
        return instance in self.past.get(rank, ())
