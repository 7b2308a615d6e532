"""What is to be done: the engine's answers, imperative, each with the entry that caused it and its reason.

A driver executes them; the command stream is also the decision log. Commands are values without secrets: the
executor adds keys and addresses.
"""

from typing import Any

from controlplane.core.choices import PredictorScore
from controlplane.core.states import JobState, ProcessState
from controlplane.protocol.base import Count, Name, Positive, Value
from controlplane.protocol.orders import Block, Orders, Rejection, Role, ServerOrders
from controlplane.protocol.spec import Choice, Emulation


class Command(Value, frozen=True, kw_only=True):
    """Base of all commands. ``cause`` is the id of the log entry that led to it."""

    cause: str
    reason: str


class MoveJob(Command, frozen=True, kw_only=True, tag="move-job"):
    """The job is in a new state; ``awaited`` says what it waits for there ("" where nothing is)."""

    state: JobState
    awaited: str = ""


class MoveProcess(Command, frozen=True, kw_only=True, tag="move-process"):
    """A worker or server is in a new state."""

    role: Role
    index: Count
    instance: str
    state: ProcessState
    agent: int = 0
    slot: Count = 0
    emulate: Emulation | None = None


class StartProcess(Command, frozen=True, kw_only=True, tag="start-process"):
    """An agent is to run this process."""

    role: Role
    index: Count
    instance: Name
    agent: int
    slot: Count
    emulate: Emulation | None = None


class StopProcess(Command, frozen=True, kw_only=True, tag="stop-process"):
    """An agent is to end this process."""

    role: Role
    index: Count
    instance: Name
    agent: int


class ReleaseSlots(Command, frozen=True, kw_only=True, tag="release-slots"):
    """The job needs its slots no longer."""


class SetRoster(Command, frozen=True, kw_only=True, tag="set-roster"):
    """From ``first_iteration`` on these workers count."""

    generation: Positive
    first_iteration: Count
    ranks: list[int]


class SetShares(Command, frozen=True, kw_only=True, tag="set-shares"):
    """A batching decision: the samples that each worker takes from ``iteration`` on."""

    generation: Positive
    iteration: Count
    policy: str
    shares: dict[int, int]
    speeds: dict[int, float] = {}
    """Predicted samples per second that led to it; empty where the policy uses none."""
    predicted_s: float | None = None
    """Predicted busy time of the slowest worker under these shares."""
    budget_s: float | None = None
    """Stop after so long, with what is done; None: process the whole share."""
    ceilings: dict[int, int] = {}
    """With a budget: the most samples that each worker may process if it has time left."""


class TrainPredictor(Command, frozen=True, kw_only=True, tag="train-predictor"):
    """Fit a predictor outside of the engine, and append ``PredictorTrained`` with what came out.

    It carries all that the fit needs, so that any driver can do it anywhere and at any time: see
    ``core.training.fit``. 12 bytes per worker and iteration looked at, once in hundreds of iterations: about a tenth of
    what the reports themselves take.
    """

    predictor: Choice
    round: Positive
    seed: Count
    data: bytes


class ScorePredictors(Command, frozen=True, kw_only=True, tag="score-predictors"):
    """Take note of how well the predictors that run side by side did since the last time."""

    iteration: Count
    acting: Name
    scores: dict[str, PredictorScore]


class AdoptPredictor(Command, frozen=True, kw_only=True, tag="adopt-predictor"):
    """Predict with newly trained weights, or act upon another predictor from now on."""

    acting: Name
    """The predictor that shares are decided with."""


class SetPlacement(Command, frozen=True, kw_only=True, tag="set-placement"):
    """A placement decision: which server holds which block."""

    version: Positive
    policy: str
    blocks: list[Block]


class IssueOrders(Command, frozen=True, kw_only=True, tag="issue-orders"):
    """Send a worker its orders."""

    rank: Count
    instance: Name
    orders: Orders


class IssuePlacement(Command, frozen=True, kw_only=True, tag="issue-placement"):
    """Send a worker the placement; the executor adds keys. ``servers``: index -> (instance, host, port)."""

    rank: Count
    instance: Name
    incarnation: Count
    version: Positive
    blocks: list[Block]
    servers: dict[int, tuple[str, str, int]]


class IssueServerOrders(Command, frozen=True, kw_only=True, tag="issue-server-orders"):
    """Send a server its orders."""

    index: Count
    instance: Name
    orders: ServerOrders


class RejectMessage(Command, frozen=True, kw_only=True, tag="reject-message"):
    """Tell a sender that its message changed nothing."""

    role: Role
    index: Count
    instance: Name
    rejection: Rejection


class RaiseFlag(Command, frozen=True, kw_only=True, tag="raise-flag"):
    """A worker straggles: ``reason`` is the sentence for the operator."""

    flag: Name
    """Unique within the job."""
    rank: Count
    kind: str
    """compute, communication, dead."""
    persistence: str
    """transient or lasting."""
    evidence: dict[str, Any]


class CloseFlag(Command, frozen=True, kw_only=True, tag="close-flag"):
    """The finding no longer holds."""

    flag: Name


class ChangePolicies(Command, frozen=True, kw_only=True, tag="change-policies"):
    """From ``first_iteration`` on, in this generation, the job runs with these choices."""

    generation: Count
    first_iteration: Count
    choices: dict[str, Choice]
    """Those that changed, by question."""


class HoldWorker(Command, frozen=True, kw_only=True, tag="hold-worker"):
    """A barrier decision: this worker waits before ``iteration`` for others."""

    rank: Count
    iteration: Count
    waits_for: list[int]


class CutIteration(Command, frozen=True, kw_only=True, tag="cut-iteration"):
    """A barrier decision: everybody stops processing ``iteration`` and synchronises what there is (A-BSP)."""

    iteration: Count
    processed: Count
    """Samples known to be processed, of ``total``."""
    total: Positive


class NameQuorum(Command, frozen=True, kw_only=True, tag="name-quorum"):
    """A barrier decision: exactly these workers' updates make ``iteration``."""

    iteration: Count
    ranks: list[int]


AnyCommand = (
    MoveJob
    | MoveProcess
    | StartProcess
    | StopProcess
    | ReleaseSlots
    | SetRoster
    | SetShares
    | TrainPredictor
    | ScorePredictors
    | AdoptPredictor
    | SetPlacement
    | IssueOrders
    | IssuePlacement
    | IssueServerOrders
    | RejectMessage
    | RaiseFlag
    | CloseFlag
    | ChangePolicies
    | HoldWorker
    | CutIteration
    | NameQuorum
)
