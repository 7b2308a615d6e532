"""Policies other than barriers, as the engine sees them: interfaces, and the values that go in and out.

A policy is a pure function: values in, decision out. It stores nothing. What it must remember is a state that it
receives and returns, a msgspec struct of its own ``state_type``, so that the engine can put it in a snapshot.

A job chooses four of them: batching, placement, data, and the barrier (``barriers``). A detector finds
stragglers. An autopilot (``Pilot``) and a guard of convergence change the job's other policies; they are in
``policies/autopilot`` and ``policies/guard``.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar, Final, Literal, Protocol, runtime_checkable

import msgspec

from controlplane.protocol.autopilot import Mode
from controlplane.protocol.base import Count32, Finite, Name, Text, Value, Word
from controlplane.protocol.energy import Draw
from controlplane.protocol.orders import Block, Piece
from controlplane.protocol.spec import Choice, JobSpec, Synchronization


class Observation(Value, frozen=True, kw_only=True, gc=False):
    """One worker's result of one iteration, after its warm-up. ``busy_s`` is t of LB-BSP Alg. 1."""

    rank: int
    iteration: int
    samples: int
    compute_s: float
    communication_s: float
    waiting_s: float
    cpu: float = 0.0
    memory: float = 0.0

    @property
    def busy_s(self) -> float:
        """Compute and unoverlapped communication."""
        return self.compute_s + self.communication_s


class ShareRequest(Value, frozen=True, kw_only=True):
    """The input of a batching policy: ``total`` samples over the ranks of ``current``, within ``limits``."""

    iteration: int
    total: int
    current: dict[int, int]
    """Each rank's current share; on a new roster, the even split."""
    limits: dict[int, tuple[int, int]]
    """Lowest and highest share of each rank."""
    multiple: int = 1
    """Shares should be multiples of this many samples."""
    draws: dict[int, Draw] = {}
    """Power and cost of each rank; only for policies that use them."""


class Finding(Value, frozen=True, kw_only=True):
    """Something that the operator should know about a worker; ``open`` is False when it no longer holds.

    ``kind`` says what: for example a straggler, a straggler that smaller shares cannot help, or a worker whose speed
    cannot be predicted.
    """

    rank: int
    kind: str
    open: bool
    sentence: str
    persistence: str = "lasting"
    evidence: dict[str, Any] = {}
    subject: str = "worker"
    """worker, server, or job; ``rank`` is that of the worker, the server's index, or 0."""
    escalated: bool = False
    """Closed because a more severe one of the same kind follows."""


class Lesson(Value, frozen=True, kw_only=True):
    """Training data of a predictor that is to be fitted outside the engine. The result comes as an event."""

    predictor: Choice
    round: int
    data: bytes
    reason: str


class PredictorTrained(Value, frozen=True, kw_only=True, tag="predictor-trained"):
    """An event: a predictor was fitted as ``TrainPredictor`` requested, or a model from an earlier job is available."""

    predictor: Name
    round: Count32
    """The round of the request; 0 if there was no request and the weights come from another job."""
    weights: bytes
    error: Finite | None = None
    """Root mean square error on held-out samples, in samples per second."""
    source: Text = ""
    """Where the model comes from, if not from this job."""


class PredictorPromoted(Value, frozen=True, kw_only=True, tag="predictor-promoted"):
    """An event: a user chose the active predictor."""

    predictor: Name
    actor: Word


class PredictorScore(Value, frozen=True, kw_only=True):
    """How well one predictor did over ``iterations``."""

    iterations: int
    rmse: float
    """Root mean square error, in samples per second."""
    relative: float
    """Root mean square of error divided by speed, so that fast workers do not dominate."""
    slowdown: float
    """Mean ratio of the iteration time under its shares to the shortest possible one (ruling 8)."""


class ShareDecision(Value, frozen=True, kw_only=True):
    """Shares that sum to the total and respect every limit, with the sentence for the operator."""

    shares: dict[int, int]
    reason: str
    speeds: dict[int, float] = {}
    """Predicted samples per second, where the policy predicts."""
    predicted_s: float | None = None
    """Predicted busy time of the slowest worker, in seconds."""
    budget_s: float | None = None
    """For work that can be cut short: workers stop after this time, with what they have processed."""
    ceilings: dict[int, int] = {}
    """With a budget: the most samples that each worker may process; at least its share."""
    findings: list[Finding] = []
    """Additional messages for the operator."""
    lessons: list[Lesson] = []
    """Fits that the driver should run."""
    acting: str = ""
    """The predictor that ``speeds`` come from."""
    scores: dict[str, PredictorScore] = {}
    """Scores of all predictors that run in parallel; empty unless scores are due."""


class ImpossibleShares(ValueError):
    """No shares satisfy the limits; the message names the conflicting ones."""


class Batching(Protocol):
    """Decides the share of each worker."""

    name: ClassVar[str]
    every_iteration: ClassVar[bool]
    """Whether shares are decided anew for each iteration while workers wait (LB-BSP section 4: blocking)."""

    @property
    def state_type(self) -> type[msgspec.Struct]:
        """The type of its state; it may depend on a component such as the predictor."""

    def start(self, request: ShareRequest, state: Any | None) -> tuple[Any, ShareDecision]:
        """The first shares of a generation; ``state`` is the state of the previous generation, if any.

        Raises:
            ImpossibleShares: where no shares respect the limits.
        """

    def decide(
        self, request: ShareRequest, observations: Sequence[Observation], state: Any
    ) -> tuple[Any, ShareDecision]:
        """The shares for ``request.iteration``, given one iteration's observations (fewer than ranks in warm-up)."""


@runtime_checkable
class Budgeting(Protocol):
    """A batching policy that ends iterations by the clock, for work that can be cut."""

    ends_by_time: ClassVar[bool]


@runtime_checkable
class Federating(Protocol):
    """A batching policy for clients of a federation."""

    for_federations: ClassVar[bool]


@runtime_checkable
class Metered(Protocol):
    """A batching policy that minimises energy or cost and needs the power of each worker."""

    counts_power: ClassVar[bool]


@runtime_checkable
class Unchanging(Protocol):
    """A batching policy whose shares depend on the roster alone, not on what was measured."""

    ignores_speed: ClassVar[bool]


@runtime_checkable
class Learner(Protocol):
    """A batching policy that accepts new weights, or another active predictor, while the job runs."""

    def learn(self, state: Any, outcome: PredictorTrained | PredictorPromoted) -> tuple[Any, str, str]:
        """The updated state, the active predictor, and the sentence for the operator.

        Raises:
            ValueError: if it has no such predictor, or cannot use the weights.
        """


@runtime_checkable
class Carrying(Protocol):
    """A batching policy whose state depends on its parameters: it decides what to keep when they change."""

    def carry(self, before: Any, state: Any) -> Any | None:
        """Its own state with the parts that still fit of ``state``, the state of the policy ``before``; None if none
        fit.
        """


@runtime_checkable
class Trainable(Protocol):
    """A predictor that is fitted outside of the engine."""

    def fit(self, data: bytes, seed: int) -> tuple[bytes, float]:
        """Weights from a lesson's data, and their error on held-out samples, in samples per second."""


class PlacementPolicy(Protocol):
    """Decides which server holds which block."""

    name: ClassVar[str]

    def place(self, blocks: Sequence[tuple[int, int]], servers: Sequence[int]) -> tuple[list[Block], str]:
        """Assign the slices ``[start, stop)`` to the indices of ``servers``; with the sentence for the operator."""


@runtime_checkable
class TensorPlacement(Protocol):
    """A placement that cuts the parameters itself: by tensors, or into blocks of its own size."""

    def place_tensors(self, tensor_sizes: Sequence[int], servers: Sequence[int]) -> tuple[list[Block], str]:
        """Cut tensors with these numbers of elements and assign the blocks to the indices of ``servers``."""


class Transfer(Value, frozen=True, kw_only=True):
    """How long one worker's exchange with one server took: push and pull, without the time that the server held it
    back.
    """

    rank: int
    server: int
    iteration: int
    bytes: int
    """Size of the parameters exchanged; each was pushed and pulled once."""
    seconds: float
    is_probe: bool = False
    """A small transfer made only to be timed."""


class PlacementRequest(Value, frozen=True, kw_only=True):
    """The input of a placement policy: where the blocks are, and where they could be."""

    iteration: int
    blocks: list[Block]
    servers: list[int]
    """Indices of the servers that can hold blocks."""
    initial: int
    """The number of servers when the job began."""
    spare: int = 0
    """How many more servers could be started now."""
    starting: int = 0
    """How many servers were ordered and cannot hold blocks yet."""
    seed: int = 0
    """The only source of randomness of this decision."""


class PlacementDecision(Value, frozen=True, kw_only=True):
    """Changes of servers, with the reason for the operator."""

    reason: str
    blocks: list[Block] | None = None
    """Every block with its new server; None if no block moves."""
    now_s: float | None = None
    """Predicted time of one worker's parallel exchange with all servers, under the present placement."""
    predicted_s: float | None = None
    """The same under the new placement, ``blocks``."""
    probes: dict[int, int] = {}
    """By server: bytes of a transfer that times it in the coming iteration, because it holds few or no blocks."""
    add: int = 0
    """How many more servers should be started."""
    retire: list[int] = []
    """Servers that are no longer needed because they hold no blocks."""


@runtime_checkable
class Rebalancing(Protocol):
    """A placement policy that keeps deciding while the job runs."""

    state_type: ClassVar[type[msgspec.Struct]]

    def begin(self) -> Any:
        """The state before anything was measured."""

    def decide(
        self, request: PlacementRequest, transfers: Sequence[Transfer], state: Any
    ) -> tuple[Any, PlacementDecision]:
        """Called with the transfers of each iteration; in most iterations nothing changes."""


@runtime_checkable
class Scaling(Protocol):
    """A placement that may ask for more servers than the job began with."""

    adds_servers: ClassVar[bool]


class DataPolicy(Protocol):
    """Decides which samples a worker may draw."""

    name: ClassVar[str]

    def offsets(self, shares: Mapping[int, int]) -> dict[int, int]:
        """Where each rank's samples begin within an iteration's global batch."""


class SplitMove(Value, frozen=True, kw_only=True):
    """A split that must be copied to another machine before its new worker can draw from it."""

    split: int
    giver: int
    taker: int
    start: int
    stop: int


class DataDecision(Value, frozen=True, kw_only=True):
    """Which splits move to other workers (in most iterations none), with the sentence for the operator."""

    moves: list[SplitMove]
    reason: str


@runtime_checkable
class Partitioned(Protocol):
    """A data policy under which a worker draws from its own splits.

    Synchronous order of calls: ``pieces`` when shares are set, ``advance`` with what was really processed when the
    iteration is complete, ``rebalance`` after it, ``adopt`` on a new roster.
    """

    state_type: ClassVar[type[msgspec.Struct]]

    def partition(self, samples: int, ranks: Sequence[int]) -> tuple[Any, str]:
        """Divide the data set among the workers; with the sentence for the operator."""

    def pieces(self, shares: Mapping[int, int], state: Any) -> dict[int, list[Piece]]:
        """Each worker's samples for its share, in order."""

    def advance(self, done: Iterable[Piece], state: Any) -> Any:
        """The state after these samples were processed; each piece was handed out, or begins one that was."""

    def held(self, state: Any) -> dict[int, int]:
        """How many samples each worker has to draw from."""

    def rebalance(self, speeds: Mapping[int, float], state: Any) -> tuple[Any, DataDecision]:
        """Exchange splits if the counts require it, given each worker's samples per second."""

    def adopt(self, ranks: Sequence[int], state: Any) -> tuple[Any, DataDecision]:
        """Reassign the splits of workers that left, and give some to new workers.

        Raises:
            ValueError: if there are fewer samples than workers.
        """


class Detector(Protocol):
    """Finds stragglers; the batching policy decides what to do about them."""

    state_type: ClassVar[type[msgspec.Struct]]

    def start(self) -> Any:
        """The state before any observation."""

    def observe(self, observations: Sequence[Observation], state: Any) -> tuple[Any, list[Finding]]:
        """Findings of one finished iteration. Only changes are returned; an open finding is not repeated."""


@runtime_checkable
class ServerDetector(Protocol):
    """A detector that also finds servers which straggle, from the workers' exchanges with them."""

    def observe_servers(self, transfers: Sequence[Transfer], state: Any) -> tuple[Any, list[Finding]]:
        """Findings about servers from one finished iteration; called after ``observe`` of the same iteration."""


Resolve = Callable[[str, Choice], Any]
"""Maps a kind ("batching", "barrier", "placement", "data", "stragglers") and a choice to the policy."""


GUARD: Final = "guard"
"""The actor of changes that a guard requests."""


class Mark(Value, frozen=True, kw_only=True):
    """A job's progress at some time; pauses do not count."""

    batches: int
    """Reported samples so far, in global batches."""
    samples: int
    at_s: float

    def pace_to(self, later: "Mark") -> float | None:
        """Seconds per sample from here to ``later``; None if nothing was processed."""
        samples = later.samples - self.samples
        return (later.at_s - self.at_s) / samples if samples > 0 and later.at_s > self.at_s else None


class PlayedAlternative(Value, frozen=True, kw_only=True):
    """The result of simulating other policies, as fractions of the present policies' simulated time per sample."""

    name: Name
    saved: Finite
    low: Finite
    high: Finite
    """``saved`` is the mean over the seeds; ``low`` and ``high`` are the least and the most."""
    unfinished: bool = False
    """Whether any of its simulations did not finish."""


class RequestSimulation(Value, frozen=True, kw_only=True):
    """Simulate the alternatives on what was recorded since the present policies took effect."""

    look: int
    reason: str


class Judged(Value, frozen=True, kw_only=True):
    """One row of the table that a decision was based on."""

    name: str
    saved: float
    low: float
    high: float
    error: float
    """Relative error of the prediction: the model's error, or the error of an earlier prediction for this alternative.
    """
    verdict: str
    """Why it was chosen or not, in a few words."""


class Verdict(Value, frozen=True, kw_only=True):
    """The decision that follows from a simulation."""

    chosen: str
    """The better alternative; empty if the present policies stay."""
    switches: bool
    """Whether to switch to it, or only to propose it."""
    rows: list[Judged]
    reason: str


class Measured(Value, frozen=True, kw_only=True):
    """The measured effect of a switch, in seconds per sample."""

    name: str
    came_from: str
    before_s: float
    after_s: float
    predicted: float
    error: float
    kept: bool
    reason: str

    @property
    def gain(self) -> float:
        """The fraction of the time that it saved, as measured."""
        return 1.0 - self.after_s / self.before_s


class Pilot(Protocol):
    """Decides when to simulate alternatives, which one to switch to, and whether the switch was right."""

    name: ClassVar[str]
    state_type: ClassVar[type[msgspec.Struct]]

    def start(self) -> Any:
        """The state before any observation."""

    def alternatives(self, spec: JobSpec) -> dict[str, Synchronization]:
        """Policies that this job may have, by name; those that it was submitted with are among them."""

    def observe(self, mark: Mark, workers: int, state: Any) -> tuple[Any, RequestSimulation | Measured | None]:
        """The job has processed another global batch, by so many workers."""

    def decide(
        self, look: int, present: str, played: list[PlayedAlternative], error: float, mark: Mark, state: Any
    ) -> tuple[Any, Verdict]:
        """Decide on the result of a ``RequestSimulation``.

        Raises:
            ValueError: if it is not the expected result.
        """

    def switched(self, came_from: str, to: str, mark: Mark, state: Any, *, by_itself: bool) -> Any:
        """Other policies take effect: the autopilot's own choice, or a user's."""

    def switches(self, state: Any) -> bool:
        """Whether it changes policies by itself."""

    def impossible(self, name: str, mark: Mark, state: Any) -> Any:
        """The job cannot use this alternative now, or it was found harmful: do not try it again soon."""

    def restarted(self, mark: Mark, state: Any) -> Any:
        """A result came when the job could not act on it: measure again, and request another simulation."""

    def set_mode(self, mode: Mode, mark: Mark, state: Any) -> Any:
        """A user has set its mode: to switch by itself, or only to propose."""


class Judgement(Value, frozen=True, kw_only=True):
    """How the loss changed after a change of policies or a larger global batch, at equal samples."""

    verdict: Literal["harmful", "harmless", "unknown"]
    batches: int
    """Global batches since the change."""
    measured: float | None = None
    """Mean loss over the last of them, in training or held out; None if it was NaN or nothing was measured."""
    expected: float | None = None
    """The loss expected under the earlier policies at the same number of samples."""
    limit: float | None = None
    """The loss above which the change counts as harmful."""
    reason: str


class ConvergenceGuard(Protocol):
    """Judges from training and held-out losses, at equal samples, whether other policies or a larger global batch harm
    convergence.
    """

    state_type: ClassVar[type[msgspec.Struct]]

    def start(self) -> Any:
        """The state before any observation."""

    def is_ready(self, state: Any) -> bool:
        """Whether a change that took effect now could be judged."""

    def is_blind(self, state: Any) -> bool:
        """Whether no change can be judged, however many batches follow: the losses cannot be compared."""

    def relaxed(self, state: Any) -> tuple[Any, Judgement | None]:
        """Relaxed policies take effect; a judgement if there is too little to compare them with."""

    def restored(self, state: Any) -> Any:
        """Stricter policies take effect, or samples are repeated: earlier losses no longer count."""

    def evaluated(self, loss: float, state: Any) -> Any:
        """The loss of the latest parameters on the held-out split; infinite if it was NaN."""

    def observe(self, samples: int, loss: float, state: Any) -> tuple[Any, Judgement | None]:
        """The mean loss of one more global batch, after ``samples`` in total; NaN or infinite if it diverged."""
