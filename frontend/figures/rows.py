"""What figures are drawn from: columns of numbers, as the queries bring them."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerTrace:
    """One worker over its iterations; an entry stands for ``Traces.width`` of them. Times are means, in seconds."""

    rank: int
    label: str
    iteration: Integers
    elapsed_s: Floats
    lowest: Integers
    """Smallest batch size among the entry's iterations."""
    highest: Integers
    compute_s: Floats
    communication_s: Floats
    waiting_s: Floats
    coordination_s: Floats


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Convergence:
    """Loss while training (weighted by samples over the workers) and the scores of the held-out split."""

    iteration: Integers
    elapsed_s: Floats
    samples: Integers
    """Processed by all workers up to and including the entry."""
    loss: Floats
    reports: int
    scored_iteration: Integers
    scored_elapsed_s: Floats
    scored_samples: Integers
    scored_loss: Floats
    scored_accuracy: Floats
    target: float | None
    """The accuracy at which the job stops."""


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """How a reader asked to see a figure."""

    theme: str = "light"
    x: str = ""
    """Name of the x axis; the figure's first where empty."""
    ranks: tuple[int, ...] = field(default=())
