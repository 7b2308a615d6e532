"""Commands: the engine's output, each with the entry that caused it and its reason.

A driver executes them; the command stream is also the decision log. Commands are values without secrets: the driver
adds keys and addresses.
"""

from typing import Any, Final, Literal

from controlplane.core.choices import Judged, PredictorScore, SplitMove
from controlplane.core.states import JobState, ProcessState
from controlplane.protocol.base import Count, Name, Positive, Value
from controlplane.protocol.orders import Block, Orders, PeerAddress, Rejection, Role, Script, ServerOrders
from controlplane.protocol.parts import Seed
from controlplane.protocol.spec import Choice, Emulation, Synchronization


class Command(Value, frozen=True, kw_only=True):
    """Base of all commands. ``cause`` is the id of the log entry that led to it."""

    cause: str
    reason: str


class PlayAlternatives(Command, frozen=True, kw_only=True, tag="play-alternatives"):
    """Simulate these policies outside of the engine, and append ``AlternativesPlayed`` with the results."""

    look: Positive
    present: str
    alternatives: dict[str, Synchronization]
    """By name, the present ones included."""
    since: Count
    """The first iteration under the current policies."""


class JudgeAlternatives(Command, frozen=True, kw_only=True, tag="judge-alternatives"):
    """An autopilot's decision: the best policies in simulation, with the table of alternatives."""

    look: Count
    iteration: Count
    present: str
    chosen: str
    """Empty: the current policies stay."""
    switches: bool
    """Whether the job switches to them; otherwise the switch is proposed."""
    choices: dict[str, Choice] = {}
    """The changes for them, by question."""
    rows: list[Judged] = []


class MeasureSwitch(Command, frozen=True, kw_only=True, tag="measure-switch"):
    """The measured effect of a switch, in seconds per sample, and whether the job goes back."""

    iteration: Count
    name: str
    came_from: str
    before_s: float
    after_s: float
    predicted: float
    error: float
    kept: bool
    goes_back: bool
    """Whether it does so without a user."""


class SetAutopilot(Command, frozen=True, kw_only=True, tag="set-autopilot"):
    """The autopilot now switches by itself, or only proposes: requested by a user, or after a user changed policies."""

    mode: str


class JudgeConvergence(Command, frozen=True, kw_only=True, tag="judge-convergence"):
    """The guard's judgement of a change of policies, with its evidence: losses at equal samples."""

    iteration: Count
    verdict: Literal["harmful", "harmless", "unknown"]
    batches: Count
    """Global batches since the change."""
    measured: float | None = None
    expected: float | None = None
    limit: float | None = None
    choices: dict[str, Choice] = {}
    """The changes that restore the earlier policies, by question."""
    grown_from: Count = 0
    """If the change is a larger global batch: the previous one; 0: policies have changed."""
    reverts: bool = False
    """Whether the job reverts the change without a user."""


class MoveJob(Command, frozen=True, kw_only=True, tag="move-job"):
    """The job is in a new state; ``awaited``: what it waits for there ("" if nothing)."""

    state: JobState
    awaited: str = ""


class BeginIncarnation(Command, frozen=True, kw_only=True, tag="begin-incarnation"):
    """A new incarnation; ``reason``: what was lost, or where a replay differed from the published commands."""

    incarnation: Positive
    after: str
    """The last entry that was answered in the previous incarnation."""
    flags: list[str]
    """The open flags; all others are closed."""


class Restart(Value, frozen=True, kw_only=True):
    """A process that ended should be restarted."""

    number: Count
    """Number of this restart; 0: the first start, or a restart that does not count against the limit."""
    allowed: Positive
    at_ms: int
    """When, in milliseconds of the log's clock."""
    wants_slot: bool = False
    """It cannot return to its slot: the scheduler must find another."""


class MoveProcess(Command, frozen=True, kw_only=True, tag="move-process"):
    """A worker or server is in a new state."""

    role: Role
    index: Count
    instance: str
    state: ProcessState
    agent: int = 0
    slot: Count = 0
    emulate: Emulation | None = None
    restart: Restart | None = None
    environment: dict[str, str] = {}
    """Its own description if it has no agent: machine, device, launcher, pid."""


class StartProcess(Command, frozen=True, kw_only=True, tag="start-process"):
    """An agent should run this process."""

    role: Role
    index: Count
    instance: Name
    agent: int
    slot: Count
    emulate: Emulation | None = None
    script: Script | None = None
    """For a process of a script; without port and token."""


class StopProcess(Command, frozen=True, kw_only=True, tag="stop-process"):
    """An agent should end this process."""

    role: Role
    index: Count
    instance: Name
    agent: int


class ReleaseSlots(Command, frozen=True, kw_only=True, tag="release-slots"):
    """The job no longer needs its slots."""


class SetRoster(Command, frozen=True, kw_only=True, tag="set-roster"):
    """From ``first_iteration`` on these workers count."""

    generation: Positive
    first_iteration: Count
    ranks: list[int]


class KeepCheckpoint(Command, frozen=True, kw_only=True, tag="keep-checkpoint"):
    """A checkpoint is complete: the job can be restored from it, and another can start from it."""

    iteration: Count
    position: Count
    bytes: Count


class SkipCheckpoint(Command, frozen=True, kw_only=True, tag="skip-checkpoint"):
    """A checkpoint cannot be used; ``reason`` says why."""

    iteration: Count


class RollBack(Command, frozen=True, kw_only=True, tag="roll-back"):
    """All processes restart, with the parameters before ``to_iteration``."""

    to_iteration: Count
    completed: int
    """The last complete iteration; those from ``to_iteration`` to it are repeated."""


class RefillBlocks(Command, frozen=True, kw_only=True, tag="refill-blocks"):
    """Blocks of lost servers were restored from workers' copies: no iteration is repeated."""

    servers: list[int]
    blocks: Count
    ranks: list[int]
    """The ranks that sent copies."""
    version: Count
    """The lowest version of them."""
    took_s: float
    """Time since the first of the servers was found lost."""


class SetShares(Command, frozen=True, kw_only=True, tag="set-shares"):
    """A batching decision: the samples that each worker takes from ``iteration`` on."""

    generation: Positive
    iteration: Count
    policy: str
    shares: dict[int, int]
    speeds: dict[int, float] = {}
    """Predicted samples per second; empty if the policy predicts none."""
    predicted_s: float | None = None
    """Predicted busy time of the slowest worker under these shares."""
    budget_s: float | None = None
    """Stop after this time with a partial sum; None: process the whole share."""
    ceilings: dict[int, int] = {}
    """With a budget: maximum number of samples of each worker if it has time left."""


class TrainPredictor(Command, frozen=True, kw_only=True, tag="train-predictor"):
    """Fit a predictor outside of the engine, and append ``PredictorTrained`` with the result.

    It contains all inputs of the fit, so that any driver can run it anywhere and at any time: see ``core.sharing.fit``.
    12 bytes per worker and iteration in the window, once in hundreds of iterations: about a tenth of the size of the
    reports themselves.
    """

    predictor: Choice
    round: Positive
    seed: Seed
    data: bytes


class ScorePredictors(Command, frozen=True, kw_only=True, tag="score-predictors"):
    """Errors of the predictors that run in parallel, since the last time."""

    iteration: Count
    acting: Name
    scores: dict[str, PredictorScore]


class AdoptPredictor(Command, frozen=True, kw_only=True, tag="adopt-predictor"):
    """Predict with newly trained weights, or use another predictor from now on."""

    acting: Name
    """The predictor that shares are computed with."""


class SetPlacement(Command, frozen=True, kw_only=True, tag="set-placement"):
    """A placement decision: which server holds which block."""

    version: Positive
    policy: str
    blocks: list[Block]


class MoveBlocks(Command, frozen=True, kw_only=True, tag="move-blocks"):
    """A placement decision in a running job: move these blocks to other servers."""

    version: Positive
    """Version of the placement after the move."""
    policy: str
    freeze_at: Count
    """The version of the values at which they are frozen."""
    moves: dict[int, list[int]]
    """By block: the current server, and the new one."""
    now_s: float | None = None
    """Predicted time of one worker's exchange with all servers, under the current placement."""
    predicted_s: float | None = None
    """The same under the new placement."""


class MeasurePlacement(Command, frozen=True, kw_only=True, tag="measure-placement"):
    """The measured effect of a change of placement, in seconds of one worker's exchange with all servers."""

    version: Positive
    before_s: float | None
    predicted_s: float | None
    after_s: float
    paused_s: float
    """The longest delay of a worker by the move."""
    took_s: float
    """From the order to the commit; training continued meanwhile."""


class RequestSlot(Command, frozen=True, kw_only=True, tag="request-slot"):
    """Request a slot for one more process of a running job."""

    role: Role
    index: Count


class ReleaseSlot(Command, frozen=True, kw_only=True, tag="release-slot"):
    """The job no longer needs the slot of this process."""

    role: Role
    index: Count


class AbandonMove(Command, frozen=True, kw_only=True, tag="abandon-move"):
    """The placement of that version is cancelled."""

    version: Positive


class IssueOrders(Command, frozen=True, kw_only=True, tag="issue-orders"):
    """Send a worker its orders."""

    rank: Count
    instance: Name
    orders: Orders


class IssuePlacement(Command, frozen=True, kw_only=True, tag="issue-placement"):
    """Send a worker the placement; the driver adds keys. ``servers``: index -> (instance, host, port)."""

    rank: Count
    instance: Name
    incarnation: Count
    version: Positive
    blocks: list[Block]
    servers: dict[int, tuple[str, str, int]]
    generation: Count = 0
    peers: list[PeerAddress] = []
    refills: dict[int, int] = {}
    again: bool = True


class IssueServerOrders(Command, frozen=True, kw_only=True, tag="issue-server-orders"):
    """Send a server its orders."""

    index: Count
    instance: Name
    orders: ServerOrders
    receivers: dict[int, tuple[str, str, int]] = {}
    """Servers that receive blocks; the driver adds keys. Index -> (instance, host, port)."""


class RejectMessage(Command, frozen=True, kw_only=True, tag="reject-message"):
    """Notify a sender that its message was rejected."""

    role: Role
    index: Count
    instance: Name
    rejection: Rejection


class RaiseFlag(Command, frozen=True, kw_only=True, tag="raise-flag"):
    """A worker or server straggles: ``reason`` is the sentence for the operator."""

    flag: Name
    """Unique within the job."""
    rank: Count
    """The server's index for a server; 0 if the whole job is meant."""
    kind: str
    """compute, communication, lost."""
    persistence: str
    """transient or lasting."""
    evidence: dict[str, Any]
    subject: str = "worker"
    """worker, server or job."""


class CloseFlag(Command, frozen=True, kw_only=True, tag="close-flag"):
    """The finding no longer holds."""

    flag: Name
    escalated: bool = False
    """Replaced by a more severe one of the same kind; it has not recovered."""


class ChangePolicies(Command, frozen=True, kw_only=True, tag="change-policies"):
    """From ``first_iteration`` on, in this generation, the job runs with these choices."""

    generation: Count
    first_iteration: Count
    choices: dict[str, Choice]
    """Those that changed, by question."""


class DeclineRequest(Command, frozen=True, kw_only=True, tag="decline-request"):
    """A user's request is declined; ``reason`` says why. Nothing has changed."""

    actor: str


class LeaveOut(Command, frozen=True, kw_only=True, tag="leave-out"):
    """A worker gets no more shares, and its process ends: immediately, or before ``iteration``."""

    rank: Count
    iteration: Count | None = None


class TakeBack(Command, frozen=True, kw_only=True, tag="take-back"):
    """A worker that was excluded, drained or lost for good is included again."""

    rank: Count


class DrainServer(Command, frozen=True, kw_only=True, tag="drain-server"):
    """A server hands its blocks to the others, and ends when it holds none."""

    index: Count


class HoldWorker(Command, frozen=True, kw_only=True, tag="hold-worker"):
    """A barrier decision: this worker waits before ``iteration`` for others."""

    rank: Count
    iteration: Count
    waits_for: list[int]


class CutIteration(Command, frozen=True, kw_only=True, tag="cut-iteration"):
    """A barrier decision: all workers stop processing ``iteration`` and synchronize their partial sums (A-BSP)."""

    iteration: Count
    processed: Count
    """Samples known to be processed, of ``total``."""
    total: Positive


class NameQuorum(Command, frozen=True, kw_only=True, tag="name-quorum"):
    """A barrier decision: ``iteration`` consists of the updates of exactly these workers."""

    iteration: Count
    ranks: list[int]


class PartitionData(Command, frozen=True, kw_only=True, tag="partition-data"):
    """A data decision: the samples are divided into splits, each owned by one of these workers."""

    samples: Count
    ranks: list[int]


class MoveSplits(Command, frozen=True, kw_only=True, tag="move-splits"):
    """A data decision: from ``iteration`` on other workers own these splits, which must be transferred to their
    machines.
    """

    iteration: Count
    moves: list[SplitMove]


class NoteUpdates(Command, frozen=True, kw_only=True, tag="note-updates"):
    """Servers have reported which workers' updates are missing from complete iterations."""

    late: dict[int, int]
    """By rank: number of updates in the whole job that arrived after others had completed their iteration, and were
    dropped.
    """
    missing: list[tuple[int, int]]
    """(iteration, rank): it left before it had pushed to all servers. Its pushed updates count."""


class NoteMicroBatch(Command, frozen=True, kw_only=True, tag="note-micro-batch"):
    """A worker has measured its micro-batch size for iterations that may be cut short."""

    rank: Count
    samples: Positive
    whole: Positive
    overhead: float
    """Relative increase in time with micro-batches of this size."""


AnyCommand = (
    MoveJob
    | BeginIncarnation
    | MoveProcess
    | StartProcess
    | StopProcess
    | ReleaseSlots
    | SetRoster
    | RollBack
    | RefillBlocks
    | KeepCheckpoint
    | SkipCheckpoint
    | SetShares
    | TrainPredictor
    | ScorePredictors
    | AdoptPredictor
    | SetPlacement
    | MoveBlocks
    | AbandonMove
    | MeasurePlacement
    | RequestSlot
    | ReleaseSlot
    | IssueOrders
    | IssuePlacement
    | IssueServerOrders
    | RejectMessage
    | RaiseFlag
    | CloseFlag
    | ChangePolicies
    | PlayAlternatives
    | JudgeAlternatives
    | MeasureSwitch
    | SetAutopilot
    | JudgeConvergence
    | DeclineRequest
    | LeaveOut
    | TakeBack
    | DrainServer
    | HoldWorker
    | CutIteration
    | NameQuorum
    | NoteMicroBatch
    | NoteUpdates
    | PartitionData
    | MoveSplits
)

CARRIERS: Final = (IssueOrders, IssuePlacement, IssueServerOrders, RejectMessage)
"""Commands that only deliver a decision, and are not decisions themselves."""


class Delivered(Command, frozen=True, kw_only=True):
    """One of ``CARRIERS`` as history reads it: without its content, which takes most of the time to decode."""


class DeliveredOrders(Delivered, frozen=True, kw_only=True, tag="issue-orders"):
    """Of ``IssueOrders``."""


class DeliveredPlacement(Delivered, frozen=True, kw_only=True, tag="issue-placement"):
    """Of ``IssuePlacement``."""


class DeliveredServerOrders(Delivered, frozen=True, kw_only=True, tag="issue-server-orders"):
    """Of ``IssueServerOrders``."""


class DeliveredRejection(Delivered, frozen=True, kw_only=True, tag="reject-message"):
    """Of ``RejectMessage``."""


DELIVERED: Final = (DeliveredOrders, DeliveredPlacement, DeliveredServerOrders, DeliveredRejection)
