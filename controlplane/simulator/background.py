"""CPU and memory use of other processes on a machine, and the remaining speed.

Statistics after LB-BSP section 5.3 (tasks of a production cluster come, stay and go; the slowest machine at a half to a
quarter of the fastest) and 5.4.2 (one competing process per machine that runs or sleeps with some probability).
"""

from typing import Annotated, Final

import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from controlplane.protocol.base import Fraction
from controlplane.protocol.spec import Part

Array = NDArray[np.float64]
Loads = tuple[Array, Array]

SWAP_FROM, SWAP_SLOPE = 0.85, 2.0
"""Above this fraction of memory use a machine swaps: its speed falls to 1 / (1 + slope * excess)."""

LEAST_LEFT: Final = 0.2
"""The CPU share that a fair scheduler guarantees, regardless of other processes."""

OWN_MEMORY_GIB: Final = 4.8
"""Memory of the training process."""

WARM_UP: Final = 10
"""Length of the warm-up in mean stays, so that tasks are already running at the beginning."""


class Background(Part, frozen=True, kw_only=True):
    """Other tasks: they arrive at random, stay for a lognormal time (sigma 1), and use cores and memory."""

    arrivals_per_hour: Annotated[float, Meta(ge=0.0)] = 40.0
    """On a machine of usual popularity; popularity is lognormal (sigma ``popularity``)."""
    stay_s: Annotated[float, Meta(gt=0.0)] = 300.0
    cores: tuple[float, float] = (0.4, 2.0)
    memory_gib: tuple[float, float] = (0.6, 5.0)
    popularity: Annotated[float, Meta(ge=0.0)] = 0.5
    step_s: Annotated[float, Meta(gt=0.0)] = 5.0


class Competitor(Part, frozen=True, kw_only=True):
    """A process that uses ``cpu`` and ``memory`` while it runs; every ``step_s`` it is drawn whether it runs."""

    cpu: Fraction
    memory: Fraction = 0.0
    runs: Fraction = 0.5
    """Fraction of the time that it runs."""
    changes: Annotated[Fraction, Meta(description="Probability that it is decided again at a step.")] = 0.2
    step_s: Annotated[float, Meta(gt=0.0)] = 1.0
    evenly: bool = False
    """Instead of running or sleeping, its CPU use varies: a sample takes 1 to 1 / (1 - cpu) times as long, drawn
    uniformly.
    """


def generated_load(
    background: Background, cores: int, memory_gib: int, length_s: float, chance: np.random.Generator
) -> Loads:
    """CPU and memory in use, as fractions, at steps of ``background.step_s`` over ``length_s``."""
    warm_s = WARM_UP * background.stay_s
    steps = int(np.ceil((warm_s + length_s) / background.step_s))
    popularity = chance.lognormal(0.0, background.popularity) if background.popularity else 1.0
    tasks = chance.poisson(background.arrivals_per_hour / 3600 * popularity * (warm_s + length_s))
    starts = chance.integers(0, steps, tasks)
    # The mean of a lognormal with sigma 1 is exp(1/2) times its median.
    stays = chance.lognormal(np.log(background.stay_s) - 0.5, 1.0, tasks) / background.step_s
    stops = np.minimum(starts + np.maximum(1, stays.astype(np.int64)), steps)
    used = _sum_of(starts, stops, chance.uniform(*background.cores, tasks) / cores, steps)
    own = min(1.0, OWN_MEMORY_GIB / memory_gib)
    full = own + _sum_of(starts, stops, chance.uniform(*background.memory_gib, tasks) / memory_gib, steps)
    first = int(warm_s / background.step_s)
    return np.minimum(1.0, used[first:]), np.minimum(1.0, full[first:])


def competing_load(competitor: Competitor, length_s: float, chance: np.random.Generator) -> Loads:
    """CPU and memory in use by a process that runs and sleeps."""
    steps = max(1, int(np.ceil(length_s / competitor.step_s)))
    decided = chance.random(steps) < competitor.changes
    decided[0] = True
    drawn = chance.random(steps)
    latest = np.maximum.accumulate(np.where(decided, np.arange(steps), 0))
    if competitor.evenly:
        taken = 1.0 - 1.0 / (1.0 + drawn[latest] * (1.0 / (1.0 - competitor.cpu) - 1.0))
        return taken, taken * (competitor.memory / competitor.cpu)
    running = (drawn < competitor.runs)[latest]
    on = running.astype(np.float64)
    return on * competitor.cpu, on * competitor.memory


def speed_left(cpu: Array, memory: Array) -> Array:
    """The remaining fraction of a machine's speed when others use ``cpu`` and memory use is ``memory``."""
    left: Array = np.maximum(LEAST_LEFT, 1.0 - cpu) / (1.0 + SWAP_SLOPE * np.maximum(0.0, memory - SWAP_FROM))
    return left


def _sum_of(starts: NDArray[np.int64], stops: NDArray[np.int64], amounts: Array, steps: int) -> Array:
    change = np.zeros(steps + 1)
    np.add.at(change, starts, amounts)
    np.add.at(change, stops, -amounts)
    summed: Array = np.maximum(0.0, np.cumsum(change)[:-1])
    return summed
