"""Defines the data of figures: columns of numbers, as queries return them."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from frontend.figures.phases import is_noticeable

LEFT_OUT = 0.02
"""Fraction of the samples that rounding and the last iteration may omit."""

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerTrace:
    """One worker over its iterations; an entry covers ``Traces.width`` iterations. Times are means, in seconds."""

    rank: int
    label: str
    iteration: Integers
    elapsed_s: Floats
    samples: Floats
    """Batch size, mean over the entry's iterations."""
    lowest: Integers
    """Smallest batch size among the entry's iterations."""
    highest: Integers
    compute_s: Floats
    """Computation on its samples, including data loading."""
    communication_s: Floats
    waiting_s: Floats
    coordination_s: Floats
    data_s: Floats | None = None
    """The part of ``compute_s`` spent waiting for the next batch. None: not known."""

    @property
    def busy_s(self) -> Floats:
        """Compute (including data loading) and communication."""
        return self.compute_s + self.communication_s

    @property
    def whole_s(self) -> Floats:
        """The length of an iteration."""
        return self.busy_s + self.waiting_s + self.coordination_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Traces:
    """The workers of a job, or the selected ones."""

    workers: tuple[WorkerTrace, ...]
    roster: int
    """How many workers the job has."""
    width: int
    """Iterations per entry; 1 if none were merged."""
    reports: int
    """Reports over all entries."""
    batch: int = 0
    """Samples of an iteration over all workers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lead:
    """How many iterations one worker is ahead of the slowest, at each of its releases."""

    rank: int
    label: str
    iteration: Integers
    elapsed_s: Floats
    ahead: Integers


@dataclass(frozen=True, slots=True, kw_only=True)
class Leads:
    """The staleness of a job's workers over its last iterations."""

    workers: tuple[Lead, ...]
    roster: int
    batch: int
    """Samples of an iteration over all workers."""
    barrier: str
    reason: str
    """Why ``workers`` is empty, if it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Convergence:
    """Training loss (weighted by samples over the workers) and the scores of the validation split."""

    iteration: Integers
    elapsed_s: Floats
    samples: Integers
    """Samples processed by all workers up to and including the entry."""
    updates: Integers
    """Updates pushed by all workers up to and including the entry."""
    batch: Floats
    """Samples per iteration over all workers, mean over the entry's iterations."""
    loss: Floats
    reports: int
    scored_iteration: Integers
    scored_elapsed_s: Floats
    scored_samples: Integers
    scored_updates: Integers
    scored_loss: Floats
    scored_accuracy: Floats
    target: float | None
    """The accuracy at which the job stops."""
    training_samples: int | None
    """Samples of one epoch; None: not known."""

    def first_score(self, target: float) -> int | None:
        """Index of the first score with an accuracy of at least ``target``; None without one."""
        return _first(self.scored_accuracy >= target)

    def first_loss(self, target: float) -> int | None:
        """Index of the first score with at most this loss; of the first such training loss if there are no scores."""
        return _first((self.scored_loss if self.has_scored_loss else self.loss) <= target)

    @property
    def has_scored_loss(self) -> bool:
        """Whether the loss of the validation split is known."""
        return bool(np.isfinite(self.scored_loss).any())


def _first(there: NDArray[np.bool_]) -> int | None:
    places = np.flatnonzero(there)
    return int(places[0]) if len(places) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """One of several jobs that are compared."""

    job: int
    label: str
    learned: Convergence
    iteration_s: Floats
    """Its iteration times (means over the workers), in any order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Heat:
    """One metric as a matrix: a row per worker, a column per ``width`` iterations.

    A cell is the highest value within its column's iterations, so that merging hides no spike; NaN where the worker
    reported none.
    """

    ranks: tuple[int, ...]
    labels: tuple[str, ...]
    first: Integers
    """The first iteration of each column."""
    width: int
    values: Floats
    """Times in seconds, shares in samples."""
    classes: tuple[str, ...] = ()
    """The machine class of each row, equal ones adjacent; empty if rows are not grouped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerIteration:
    """One worker in one iteration: its end and its phases, in seconds since the start of the job."""

    rank: int
    iteration: int
    ended_s: float
    data_s: float
    compute_s: float
    push_s: float
    pull_s: float
    waiting_s: float
    coordination_s: float
    samples: int

    @property
    def whole_s(self) -> float:
        """The length of the iteration."""
        return self.data_s + self.compute_s + self.push_s + self.pull_s + self.waiting_s + self.coordination_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """A few iterations of some workers, one by one."""

    spans: tuple[WorkerIteration, ...]
    ranks: tuple[int, ...]
    roster: int
    first: int
    last: int
    """The last iteration shown, inclusive."""
    newest: int
    """The last one that exists."""
    uncertain_s: float = 0.0
    """The largest possible error of the time between the rows of two workers."""
    late_s: float = 0.0
    """95th percentile of the delay of reports, for the worker with the longest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Holding:
    """The blocks of one server, and how long one worker's exchange with it takes."""

    server: int
    blocks: tuple[tuple[int, int], ...]
    """(index, bytes) of each block."""
    push_s: float | None
    pull_s: float | None
    """Under this placement; None where nothing was measured."""

    @property
    def held_bytes(self) -> int:
        """Bytes of all its blocks."""
        return sum(size for _, size in self.blocks)

    @property
    def exchange_s(self) -> float | None:
        """Push and pull."""
        return None if self.push_s is None or self.pull_s is None else self.push_s + self.pull_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Worth:
    """The effect of a placement change: time of one worker's exchange with all servers, in seconds."""

    before_s: float | None
    """Just before the change was ordered; None where nothing was measured."""
    predicted_s: float | None
    after_s: float
    """Just after it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Placements:
    """The current placement of the parameters, and the one before the last move."""

    now: tuple[Holding, ...]
    before: tuple[Holding, ...]
    """Empty if nothing has moved yet."""
    before_unknown: str = ""
    """Why the earlier exchange times are not known, if they are not."""
    worth: Worth | None = None
    """The last move's effect; None where it was not measured."""
    version: int
    policy: str
    updates_per_s: float | None = None
    """Updates per second of all workers, each of which sends every block; None with too few reports."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Waited:
    """One worker's time by phase, in seconds, and its staleness."""

    rank: int
    label: str
    data_s: float
    compute_s: float
    communication_s: float
    waiting_s: float
    coordination_s: float
    staleness: float | None
    """Mean number of iterations ahead of the slowest at the start of its last iterations; None: not known."""
    staleness_most: int | None

    @property
    def whole_s(self) -> float:
        """All its time."""
        return self.data_s + self.compute_s + self.communication_s + self.lost_s

    @property
    def lost_s(self) -> float:
        """Waiting for others and for the control plane."""
        return self.waiting_s + self.coordination_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """The cost of waiting per worker, and the staleness under a relaxed barrier."""

    workers: tuple[Waited, ...]
    again_s: float
    """Waiting in repeated iterations or those reported late: lost as well, but in no worker's row."""
    again_coordination_s: float
    again_whole_s: float
    barrier: str
    recent: int
    """Iterations over which staleness was measured."""

    @property
    def waiting_s(self) -> float:
        """Worker-seconds lost to waiting for other workers."""
        return sum(each.waiting_s for each in self.workers) + self.again_s

    @property
    def coordination_s(self) -> float:
        """Worker-seconds lost to waiting for the control plane."""
        return sum(each.coordination_s for each in self.workers) + self.again_coordination_s

    @property
    def lost_s(self) -> float:
        """Both together."""
        return self.waiting_s + self.coordination_s

    @property
    def whole_s(self) -> float:
        """All worker-seconds."""
        return sum(each.whole_s for each in self.workers) + self.again_whole_s

    @property
    def data_s(self) -> float:
        """Worker-seconds of data loading, without repeated iterations."""
        return sum(each.data_s for each in self.workers)

    @property
    def is_loading(self) -> bool:
        """Whether any worker waits noticeably for its batches: data loading is then shown separately from compute."""
        return is_noticeable((each.data_s, each.whole_s) for each in self.workers)

    @property
    def share(self) -> float:
        """Lost time, as a share of all workers' time."""
        return self.lost_s / self.whole_s if self.whole_s else 0.0

    @property
    def staleness(self) -> float | None:
        """Mean over the workers."""
        known = [each.staleness for each in self.workers if each.staleness is not None]
        return sum(known) / len(known) if known else None


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeedSeries:
    """One worker's speed at each of its batch sizes, in samples per second of busy time."""

    label: str
    batch: Integers
    samples_per_second: Floats
    """Medians,"""
    low: Floats
    high: Floats
    """Quartiles."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Speeds:
    """A machine's speed, a series for each worker that ran on it."""

    series: tuple[SpeedSeries, ...]
    reports: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """A machine's load, oldest first, from 0 to 1."""

    at_ms: Integers
    cpu: Floats
    memory: Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class Other:
    """A simulated variant of a job; ``saved`` is a fraction of the current variant's time, negative if it is slower."""

    name: str
    iteration_s: float
    waiting: float
    saved: float
    low: float
    high: float
    """Minimum and maximum of ``saved`` over all seeds."""
    samples: float
    """Samples processed, relative to the current variant."""
    unfinished: bool
    kind: str = "policy"
    """What it changes: ``policy`` or ``machines``."""

    @property
    def whole(self) -> bool:
        """Whether it processes the same samples: otherwise its time is not comparable."""
        return self.samples > 1 - LEFT_OUT


@dataclass(frozen=True, slots=True, kw_only=True)
class Others:
    """Simulated variants of a job, best first."""

    ways: tuple[Other, ...]
    now: Other | None
    doubt: float
    """The model's relative error on the mean of the recorded iterations."""
    reason: str
    """Why there is no result, if there is none."""

    @property
    def best(self) -> Other | None:
        """The variant that saves most among those that do the same work and finish."""
        return next((way for way in self.ways if way.whole and not way.unfinished), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Predictions:
    """Busy times of the slowest worker that share decisions predicted, and those measured in their first iterations."""

    iteration: Integers
    predicted_s: Floats
    measured_s: Floats

    @property
    def off(self) -> Floats:
        """Measured over predicted, less one."""
        return self.measured_s / self.predicted_s - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictorErrors:
    """The errors of a job's predictors at each scoring."""

    iteration: Integers
    errors: dict[str, Floats]
    """By predictor: mean relative error of the predicted speeds; NaN where it was not scored."""
    acting: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedOutcome:
    """One policy of a simulation: its mean iteration in virtual seconds, and the phases as fractions of worker time."""

    policy: str
    iteration_s: float
    compute: float
    communication: float
    waiting: float
    coordination: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulated:
    """A simulation's completed policies, in order."""

    outcomes: tuple[SimulatedOutcome, ...]
    baseline: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """A decision or event on a job's charts."""

    elapsed_s: float
    iteration: float
    samples: float
    words: str
    updates: float = 0.0
    epochs: float | None = None
    """None: not known."""
    is_note: bool = False
    """Whether a person wrote it."""

    def at(self, x: str) -> float | None:
        """Its position on an axis; None: not known."""
        axes = {"time": self.elapsed_s, "samples": self.samples, "update": self.updates, "epoch": self.epochs}
        return axes.get(x, self.iteration)


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """The requested view of a figure."""

    theme: str = "light"
    x: str = ""
    """Name of the x axis; empty: the figure's first."""
    ranks: tuple[int, ...] = field(default=())
    metric: str = ""
    scale: str = ""
    """The selected values of the figure's options; empty: the first."""
    first: int | None = None
    """First iteration of the window, if the figure has one; None: the latest."""
    count: int = 0
    """Iterations in the window; 0: the figure's default."""
    marks: str = "on"
    """Whether decisions are marked: on or off."""
    smooth: int = 0
    """Number of neighbouring values to average, if the figure supports it; 0: none."""
    accuracy: float | None = None
    """The requested target accuracy; None: the one at which the job stops."""
    loss: float | None = None
    """The requested target loss, or None."""
    top: int = 0
    """Show only this many workers, the slowest; 0: the figure's default."""
