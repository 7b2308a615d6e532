"""Policies other than barriers, as the engine sees them: interfaces, and the values that go in and out.

A policy is values in, decision out. It stores nothing: all that it must remember is a state that it receives and
returns, a msgspec struct of its own ``state_type``, so that the engine can put it in a snapshot.

Four of them are choices of a job: batching, placement, data, and the barrier (``barriers``). A detector finds
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
    """Each rank's share so far; on a new roster, the even split."""
    limits: dict[int, tuple[int, int]]
    """Lowest and highest share of each rank."""
    multiple: int = 1
    """Shares should be multiples of so many samples."""
    draws: dict[int, Draw] = {}
    """Power and cost of each rank; only for policies that use them."""


class Finding(Value, frozen=True, kw_only=True):
    """Something about a worker that the operator should know, or that no longer holds (``open`` False).

    A straggler, one that cannot be helped by smaller shares, one whose speed cannot be predicted: ``kind`` says which.
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
    """Training data of a predictor, for a fit outside of the engine. The answer comes as an event."""

    predictor: Choice
    round: int
    data: bytes
    reason: str


class PredictorTrained(Value, frozen=True, kw_only=True, tag="predictor-trained"):
    """An event: a fit is done: what ``TrainPredictor`` asked for, or a model that an earlier job left behind."""

    predictor: Name
    round: Count32
    """That of the request; 0: there was none, the weights come from another job."""
    weights: bytes
    error: Finite | None = None
    """Root mean square error on the samples that were held back, in samples per second."""
    source: Text = ""
    """Whose model it is, where it is not this job's own."""


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
    """Root mean square of the error over the speed, which the fast workers do not dominate."""
    slowdown: float
    """Mean of the iteration time that its shares lead to over the least possible one (ruling 8)."""


class ShareDecision(Value, frozen=True, kw_only=True):
    """Shares that sum to the total and respect every limit, with the sentence for the operator."""

    shares: dict[int, int]
    reason: str
    speeds: dict[int, float] = {}
    """Predicted samples per second, where the policy predicts."""
    predicted_s: float | None = None
    """Predicted busy time of the slowest worker, in seconds."""
    budget_s: float | None = None
    """For work that can be cut: stop after so long, with what is done."""
    ceilings: dict[int, int] = {}
    """With a budget: how many samples each worker may process at most, its share or more."""
    findings: list[Finding] = []
    """An additional message for the operator."""
    lessons: list[Lesson] = []
    """A fit requested from the driver."""
    acting: str = ""
    """The predictor that the speeds are from."""
    scores: dict[str, PredictorScore] = {}
    """Of all predictors that run in parallel; empty except when scores are due."""


class ImpossibleShares(ValueError):
    """No shares satisfy the limits; the message names the conflicting ones."""


class Batching(Protocol):
    """Which share each worker takes."""

    name: ClassVar[str]
    every_iteration: ClassVar[bool]
    """Whether a share is decided for each iteration, and workers wait for it (LB-BSP section 4: blocking)."""

    @property
    def state_type(self) -> type[msgspec.Struct]:
        """The type of its state; may depend on a part such as its predictor."""

    def start(self, request: ShareRequest, state: Any | None) -> tuple[Any, ShareDecision]:
        """The first shares of a generation; ``state`` is that of the generation before, if any.

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
    """A batching policy that minimises energy or cost: it asks what each worker draws."""

    counts_power: ClassVar[bool]


@runtime_checkable
class Unchanging(Protocol):
    """A batching policy whose shares depend on the roster alone, not on what was measured."""

    ignores_speed: ClassVar[bool]


@runtime_checkable
class Learner(Protocol):
    """A batching policy that accepts updates while it runs: weights, and which predictor to use."""

    def learn(self, state: Any, outcome: PredictorTrained | PredictorPromoted) -> tuple[Any, str, str]:
        """The updated state, the active predictor, and the sentence for the operator.

        Raises:
            ValueError: where it has no such predictor, or cannot use what came.
        """


@runtime_checkable
class Carrying(Protocol):
    """A batching policy whose state depends on its parameters: it decides what to keep when they change."""

    def carry(self, before: Any, state: Any) -> Any | None:
        """Its own state with what still fits of ``state``, the state of the policy ``before``; None: nothing."""


@runtime_checkable
class Trainable(Protocol):
    """A predictor that is fitted outside of the engine."""

    def fit(self, data: bytes, seed: int) -> tuple[bytes, float]:
        """Weights from a lesson's data, and their error on samples held back, in samples per second."""


class PlacementPolicy(Protocol):
    """Which server holds which block."""

    name: ClassVar[str]

    def place(self, blocks: Sequence[tuple[int, int]], servers: Sequence[int]) -> tuple[list[Block], str]:
        """Assign the slices ``[start, stop)`` to the indices of ``servers``; with the sentence for the operator."""


@runtime_checkable
class TensorPlacement(Protocol):
    """A placement that cuts the parameters itself, since it goes by tensors, or by blocks of its own size."""

    def place_tensors(self, tensor_sizes: Sequence[int], servers: Sequence[int]) -> tuple[list[Block], str]:
        """Cut tensors of so many elements and assign them to the indices of ``servers``, with the sentence."""


class Transfer(Value, frozen=True, kw_only=True):
    """How long one worker's exchange with one server took: push and pull, without what the server held back."""

    rank: int
    server: int
    iteration: int
    bytes: int
    """Parameters that it was about, each pushed and pulled once."""
    seconds: float
    is_probe: bool = False
    """A small transfer made only to be timed."""


class PlacementRequest(Value, frozen=True, kw_only=True):
    """Where the blocks are, and where they could be."""

    iteration: int
    blocks: list[Block]
    servers: list[int]
    """Indices of the servers that can hold blocks."""
    initial: int
    """How many there were when the job began."""
    spare: int = 0
    """How many more could be started now."""
    starting: int = 0
    """How many were ordered and cannot hold blocks yet."""
    seed: int = 0
    """For this decision alone: its only source of randomness."""


class PlacementDecision(Value, frozen=True, kw_only=True):
    """Changes of servers, with the reason for the operator."""

    reason: str
    blocks: list[Block] | None = None
    """Every block with its server from now on; None: they stay where they are."""
    now_s: float | None = None
    """Predicted time of one worker's exchange with all servers, side by side, as the blocks are."""
    predicted_s: float | None = None
    """The same under ``blocks``."""
    probes: dict[int, int] = {}
    """Servers to be timed in the coming iteration by a transfer of so many bytes, since they hold little or nothing."""
    add: int = 0
    """So many more servers should be started."""
    retire: list[int] = []
    """Servers that are no longer needed: they hold nothing."""


@runtime_checkable
class Rebalancing(Protocol):
    """A placement policy that keeps deciding while the job runs."""

    state_type: ClassVar[type[msgspec.Struct]]

    def begin(self) -> Any:
        """The state before anything was measured."""

    def decide(
        self, request: PlacementRequest, transfers: Sequence[Transfer], state: Any
    ) -> tuple[Any, PlacementDecision]:
        """Given what one iteration's transfers add; mostly nothing changes."""


@runtime_checkable
class Scaling(Protocol):
    """A placement that may ask for more servers than the job began with."""

    adds_servers: ClassVar[bool]


class DataPolicy(Protocol):
    """Which samples a worker may draw."""

    name: ClassVar[str]

    def offsets(self, shares: Mapping[int, int]) -> dict[int, int]:
        """Where each rank's samples begin within an iteration's global batch."""


class SplitMove(Value, frozen=True, kw_only=True):
    """A split that must get from one machine to another before its new worker can draw from it."""

    split: int
    giver: int
    taker: int
    start: int
    stop: int


class DataDecision(Value, frozen=True, kw_only=True):
    """Which splits change hands, with the sentence for the operator; mostly none."""

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
        """Cut the data set among the workers; with the sentence for the operator."""

    def pieces(self, shares: Mapping[int, int], state: Any) -> dict[int, list[Piece]]:
        """Each worker's samples for its share, in order."""

    def advance(self, done: Iterable[Piece], state: Any) -> Any:
        """The state when these samples were processed; each piece is one that was given, or its beginning."""

    def held(self, state: Any) -> dict[int, int]:
        """How many samples each worker has to draw from."""

    def rebalance(self, speeds: Mapping[int, float], state: Any) -> tuple[Any, DataDecision]:
        """Exchange splits if the counts require it, given each worker's samples per second."""

    def adopt(self, ranks: Sequence[int], state: Any) -> tuple[Any, DataDecision]:
        """Reassign the splits of workers that left, and give some to new workers.

        Raises:
            ValueError: where there are fewer samples than workers.
        """


class Detector(Protocol):
    """Finds stragglers; the batching policy decides what to do about them."""

    state_type: ClassVar[type[msgspec.Struct]]

    def start(self) -> Any:
        """The state before any observation."""

    def observe(self, observations: Sequence[Observation], state: Any) -> tuple[Any, list[Finding]]:
        """Findings of one finished iteration: only changes are returned, an open finding is not repeated."""


@runtime_checkable
class ServerDetector(Protocol):
    """A detector that also finds servers which straggle, from the workers' exchanges with them."""

    def observe_servers(self, transfers: Sequence[Transfer], state: Any) -> tuple[Any, list[Finding]]:
        """What one finished iteration adds; called after ``observe`` of the same iteration."""


Resolve = Callable[[str, Choice], Any]
"""From a question ("batching", "barrier", "placement", "data", "stragglers") and a choice to the policy itself."""


GUARD: Final = "guard"
"""Who asks for the changes of a guard."""


class Mark(Value, frozen=True, kw_only=True):
    """How far a job was at some time, pauses not counted."""

    batches: int
    """Global batches' worth of samples that were reported so far."""
    samples: int
    at_s: float

    def pace_to(self, later: "Mark") -> float | None:
        """Seconds per sample from here to ``later``; None: nothing was processed."""
        samples = later.samples - self.samples
        return (later.at_s - self.at_s) / samples if samples > 0 and later.at_s > self.at_s else None


class PlayedAlternative(Value, frozen=True, kw_only=True):
    """What the simulation of other policies gave. Parts of the present policies' time per sample, simulated alike."""

    name: Name
    saved: Finite
    low: Finite
    high: Finite
    """Mean, least and most over the seeds."""
    unfinished: bool = False
    """Whether any of its runs did not come to its end."""


class RequestSimulation(Value, frozen=True, kw_only=True):
    """Simulate the alternatives on what was seen since the present policies took effect."""

    look: int
    reason: str


class Judged(Value, frozen=True, kw_only=True):
    """One row of the table that a decision stood on."""

    name: str
    saved: float
    low: float
    high: float
    error: float
    """By which part the prediction may be off: the model's, or what an earlier prediction of it missed by."""
    verdict: str
    """Why it was chosen or not, in a few words."""


class Verdict(Value, frozen=True, kw_only=True):
    """What follows from a simulation."""

    chosen: str
    """The alternative that is better; empty: the present policies stay."""
    switches: bool
    """Whether to switch to it, or only to propose it."""
    rows: list[Judged]
    reason: str


class Measured(Value, frozen=True, kw_only=True):
    """What came of a switch, in seconds per sample."""

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
        """The part of the time that it saved, as measured."""
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
        """The answer to an ``RequestSimulation``.

        Raises:
            ValueError: if it is not the answer that is waited for.
        """

    def switched(self, came_from: str, to: str, mark: Mark, state: Any, *, by_itself: bool) -> Any:
        """Other policies take effect: the autopilot's own choice, or someone's."""

    def switches(self, state: Any) -> bool:
        """Whether it changes policies by itself."""

    def impossible(self, name: str, mark: Mark, state: Any) -> Any:
        """The job cannot have this alternative now, or it was found to do harm: it is not tried again soon."""

    def restarted(self, mark: Mark, state: Any) -> Any:
        """An answer came when the job could not act on it: measure again, and request another simulation."""

    def set_mode(self, mode: Mode, mark: Mark, state: Any) -> Any:
        """A user has set its mode: it switches by itself, or only proposes."""


class Judgement(Value, frozen=True, kw_only=True):
    """What became of the loss after a change of policies or a larger global batch, at equal samples."""

    verdict: Literal["harmful", "harmless", "unknown"]
    batches: int
    """Global batches since the change."""
    measured: float | None = None
    """Mean loss over the last of them, in training or held out; None: not a number, or nothing was measured."""
    expected: float | None = None
    """What the policies before the change would have given, at the same number of samples."""
    limit: float | None = None
    """The loss above which the change counts as harmful."""
    reason: str


class ConvergenceGuard(Protocol):
    """Judges from training and held-out losses at equal samples whether a change harms convergence: of policies, or a
    larger global batch, which is a relaxation too.
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
        """Stricter policies take effect, or samples are repeated: nothing before counts any more."""

    def evaluated(self, loss: float, state: Any) -> Any:
        """The loss of the latest parameters on the held-out split; infinite: it was no number."""

    def observe(self, samples: int, loss: float, state: Any) -> tuple[Any, Judgement | None]:
        """The mean loss over one more global batch, after so many samples in all; NaN or infinite: it diverged."""
