"""What figures are drawn from: columns of numbers, as the queries bring them."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from frontend.figures.phases import is_noticeable

LEFT_OUT = 0.02
"""Rounding and the last iteration may leave out such a part of the samples."""

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerTrace:
    """One worker over its iterations; an entry stands for ``Traces.width`` of them. Times are means, in seconds."""

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
    """Of its samples, data loading included."""
    communication_s: Floats
    waiting_s: Floats
    coordination_s: Floats
    data_s: Floats | None = None
    """Part of ``compute_s``: waiting for the next batch. None: not known."""

    @property
    def busy_s(self) -> Floats:
        """Its own part of an iteration."""
        return self.compute_s + self.communication_s

    @property
    def whole_s(self) -> Floats:
        """The length of an iteration."""
        return self.busy_s + self.waiting_s + self.coordination_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Traces:
    """The workers of a job, or those of them that were chosen."""

    workers: tuple[WorkerTrace, ...]
    roster: int
    """How many workers the job has."""
    width: int
    """Iterations behind each entry; 1 where nothing was merged."""
    reports: int
    """Reports behind all entries."""
    batch: int = 0
    """Samples of an iteration over all workers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lead:
    """How far one worker was ahead of the slowest, each time that it was let go."""

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
    """Why there are no workers, where there are none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Convergence:
    """Loss while training (weighted by samples over the workers) and the scores of the held-out split."""

    iteration: Integers
    elapsed_s: Floats
    samples: Integers
    """Processed by all workers up to and including the entry."""
    updates: Integers
    """Pushed by all workers, likewise."""
    batch: Floats
    """Samples of one iteration over all workers, mean over the entry's iterations."""
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
    """Of one epoch; None: not known."""

    def first_score(self, target: float) -> int | None:
        """Which score is the first with an accuracy of at least ``target``; None without one."""
        return _first(self.scored_accuracy >= target)

    def first_loss(self, target: float) -> int | None:
        """Which score, or before anything was scored which entry of the training loss, is the first at most that."""
        return _first((self.scored_loss if self.has_scored_loss else self.loss) <= target)

    @property
    def has_scored_loss(self) -> bool:
        """Whether the held-out split's loss is known."""
        return bool(np.isfinite(self.scored_loss).any())


def _first(there: NDArray[np.bool_]) -> int | None:
    places = np.flatnonzero(there)
    return int(places[0]) if len(places) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """One of several jobs that are laid side by side."""

    job: int
    label: str
    learned: Convergence
    iteration_s: Floats
    """Lengths of its iterations (means over the workers), in any order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Heat:
    """One metric of every worker over the iterations, as a matrix: a row per worker, a column per ``width`` iterations.

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
    """The kind of machine of each row, alike ones together; empty where rows are not told apart by it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stay:
    """One worker in one iteration: when it ended, and its phases, all in seconds of the job's time."""

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

    stays: tuple[Stay, ...]
    ranks: tuple[int, ...]
    roster: int
    first: int
    last: int
    """The last iteration shown, inclusive."""
    newest: int
    """The last one that there is."""
    uncertain_s: float = 0.0
    """By how much the rows of two workers may be displaced against one another."""
    late_s: float = 0.0
    """How late reports arrived, of the worker with the latest: 95 in 100 were quicker."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Holding:
    """What one server holds, and how long one worker's exchange with it takes."""

    server: int
    blocks: tuple[tuple[int, int], ...]
    """(index, bytes) of each block."""
    push_s: float | None
    pull_s: float | None
    """While it holds that; None where nothing was measured."""

    @property
    def held_bytes(self) -> int:
        """All its blocks together."""
        return sum(size for _, size in self.blocks)

    @property
    def exchange_s(self) -> float | None:
        """Both ways."""
        return None if self.push_s is None or self.pull_s is None else self.push_s + self.pull_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Worth:
    """What a change of placement was worth: one worker's exchange with all servers, in seconds."""

    before_s: float | None
    """Right before it was ordered; None where nothing was measured."""
    predicted_s: float | None
    after_s: float
    """Right after it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Placements:
    """Where the parameters are, and where they were before they moved last."""

    now: tuple[Holding, ...]
    before: tuple[Holding, ...]
    """Empty where nothing has moved yet."""
    before_unknown: str = ""
    """Why it is not known what exchanges took before, where it is not."""
    worth: Worth | None = None
    """Of the last move; None where it was not measured."""
    version: int
    policy: str
    updates_per_s: float | None = None
    """Updates of all workers, each of which brings every block anew; None where too little was reported."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Waited:
    """Where all of one worker's time went, in seconds, and how far it ran ahead of the slowest."""

    rank: int
    label: str
    data_s: float
    compute_s: float
    communication_s: float
    waiting_s: float
    coordination_s: float
    staleness: float | None
    """Mean over its last iterations: by how many it was ahead of the slowest when it started; None: not known."""
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
    """What waiting cost a job, worker by worker, and what was paid instead where its barrier is relaxed."""

    workers: tuple[Waited, ...]
    again_s: float
    """Waiting in iterations that were done again, or whose reports came late: lost too, and nobody's row has it."""
    again_coordination_s: float
    again_whole_s: float
    barrier: str
    recent: int
    """Iterations that staleness was measured over."""

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
        """Worker-seconds of data loading, of iterations that were not repeated."""
        return sum(each.data_s for each in self.workers)

    @property
    def is_loading(self) -> bool:
        """Whether some worker waits noticeably for its batches: data loading is then shown apart from compute."""
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
    """One worker's speed at each batch size that it had, in samples per second of busy time."""

    label: str
    batch: Integers
    samples_per_second: Floats
    """Medians,"""
    low: Floats
    high: Floats
    """and quartiles."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Speeds:
    """A machine's speed, a series for each worker that ran on it."""

    series: tuple[SpeedSeries, ...]
    reports: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """A machine's load, oldest first, as parts of 1."""

    at_ms: Integers
    cpu: Floats
    memory: Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class Other:
    """One other way to run a job; ``saved`` is a part of the time that the present way takes, negative if it loses."""

    name: str
    iteration_s: float
    waiting: float
    saved: float
    low: float
    high: float
    """The least and most that any seed gave."""
    samples: float
    """Processed, over those of the present way."""
    unfinished: bool
    kind: str = "policy"
    """What is other than it is: ``policy`` or ``machines``."""

    @property
    def whole(self) -> bool:
        """Whether it does the same work: a way that leaves samples out is no faster for that."""
        return self.samples > 1 - LEFT_OUT


@dataclass(frozen=True, slots=True, kw_only=True)
class Others:
    """What a job would have done otherwise, the best first."""

    ways: tuple[Other, ...]
    now: Other | None
    doubt: float
    """How far the model is off on the mean of what was recorded, as a part of it."""
    reason: str
    """Why nothing is known, where nothing is."""

    @property
    def best(self) -> Other | None:
        """The one that saves most of those that do the same work and come to an end."""
        return next((way for way in self.ways if way.whole and not way.unfinished), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Predictions:
    """What decisions about shares predicted for the slowest worker, and what the first iteration under them was."""

    iteration: Integers
    predicted_s: Floats
    measured_s: Floats

    @property
    def off(self) -> Floats:
        """Measured over predicted, less one."""
        return self.measured_s / self.predicted_s - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictorErrors:
    """How far the predictors of a job were off, each time that they were scored."""

    iteration: Integers
    errors: dict[str, Floats]
    """By predictor: mean relative error of the predicted speeds; NaN where it was not scored."""
    acting: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedOutcome:
    """One policy of a simulation: its mean iteration in virtual seconds, and the parts of all workers' time."""

    policy: str
    iteration_s: float
    compute: float
    communication: float
    waiting: float
    coordination: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulated:
    """A simulation's policies that came to an end, in order."""

    outcomes: tuple[SimulatedOutcome, ...]
    baseline: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """Something that was decided, or happened, in the course of a job."""

    elapsed_s: float
    iteration: float
    samples: float
    words: str
    updates: float = 0.0
    epochs: float | None = None
    """None: not known."""

    def at(self, x: str) -> float | None:
        """Where it stands on that axis; None: not known."""
        axes = {"time": self.elapsed_s, "samples": self.samples, "update": self.updates, "epoch": self.epochs}
        return axes.get(x, self.iteration)


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """How a reader asked to see a figure."""

    theme: str = "light"
    x: str = ""
    """Name of the x axis; the figure's first where empty."""
    ranks: tuple[int, ...] = field(default=())
    metric: str = ""
    scale: str = ""
    """Where a figure has such options, the one that was picked; its first where empty."""
    first: int | None = None
    """Where a figure shows a window of iterations, its first one; None: the latest."""
    count: int = 0
    """Iterations in the window; 0: as many as the figure shows by itself."""
    marks: str = "on"
    """Whether decisions are marked: on or off."""
    smooth: int = 0
    """So many neighbouring values make one, where a figure can be smoothed; 0: none do."""
    accuracy: float | None = None
    """Where a figure has a target, the accuracy that a reader aims at; None: that at which the job stops."""
    loss: float | None = None
    """And the loss; None: none."""
    top: int = 0
    """Only so many workers, those that pace the job; 0: as many as the figure shows by itself."""
