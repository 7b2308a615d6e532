"""Speeds of shared machines, with their CPU and memory readings.

Modelled after cluster B of LB-BSP section 5.3: 32 machines of five kinds, on which tasks of other people come, stay and
go. What they take of a machine's CPU and memory slows the training down; short disturbances slow it without leaving a
trace in either. All chance comes from the seed.

The constants below were written down before any predictor was, and stay as they are: predictors are to fit the
series, not the other way round.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

STEPS: Final = 4
"""Load changes at any quarter of an iteration; CPU and memory are read at its beginning only."""

BURN_IN: Final = 400
"""Iterations before the first recorded one, so that tasks are already there."""

SPEED_PER_CORE: Final = 5.0
"""Samples per second of one m4 core that no other uses."""

OWN_MEMORY: Final = 0.3
"""Share of a machine with 32 GiB that the training itself occupies."""

SWAP_FROM, SWAP_SLOPE = 0.85, 2.0
"""Above this share of its memory a machine swaps: its speed falls to 1 / (1 + slope * excess)."""

LEAST_LEFT: Final = 0.35
"""The fraction of the CPU that a fair scheduler leaves, regardless of other tasks."""

READING_SIGMA: Final = 0.02
"""Error of a CPU or memory reading."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One row of the paper's Table 2: cores, GiB, how many, and the speed of a core relative to m4."""

    cores: int
    memory_gib: int
    count: int
    core_speed: float


CLUSTER_B: Final = (
    Kind(cores=8, memory_gib=32, count=17, core_speed=1.0),
    Kind(cores=8, memory_gib=16, count=10, core_speed=1.35),
    Kind(cores=8, memory_gib=61, count=2, core_speed=1.0),
    Kind(cores=16, memory_gib=64, count=2, core_speed=1.0),
    Kind(cores=4, memory_gib=16, count=1, core_speed=1.0),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """The other tasks, and how much of their load the readings show."""

    name: str
    story: str
    arrivals: float
    """New tasks per iteration on a machine of 8 cores and 32 GiB."""
    stay: float
    """Mean stay of a task, in iterations (lognormal, sigma 1)."""
    cores: tuple[float, float] = (0.8, 4.0)
    memory_gib: tuple[float, float] = (0.6, 5.0)
    unseen: float = 0.0
    """Share of the tasks that no reading shows: they use the same caches, disks or links."""
    saturation: float = 0.0
    """0: speed in proportion to the CPU left over; above, a concave response 1 - exp(-saturation * left), scaled."""
    noise: float = 0.05
    """Standard deviation of the logarithm of speed from one iteration to the next."""
    spikes: float = 0.03
    """Probability that a disturbance of 1 or 2 iterations begins."""
    spike_factor: tuple[float, float] = (0.4, 0.9)


SETTINGS: Final = (
    Setting(
        name="leftovers",
        story="long tasks of others, all of them visible; speed in proportion to the CPU left over",
        arrivals=0.012,
        stay=60.0,
    ),
    Setting(
        name="saturating",
        story="shorter tasks, all of them visible; the first half of a CPU is worth more than the second",
        arrivals=0.036,
        stay=20.0,
        saturation=3.0,
    ),
    Setting(
        name="blind",
        story="as the first, but CPU and memory show only half of the tasks",
        arrivals=0.012,
        stay=60.0,
        unseen=0.5,
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """Iterations by machines. ``cpu[k]`` and ``memory[k]`` were read when iteration k began."""

    speed: Array
    expected: Array
    """The speed that the load alone explains: without noise and disturbances."""
    cpu: Array
    memory: Array


def generate(setting: Setting, *, iterations: int, seed: int, machines: int = 32) -> Series:
    """Series of that many machines of cluster B, repeated or cut to the number asked for."""
    kinds = [kind for kind in CLUSTER_B for _ in range(kind.count)]
    chance = np.random.default_rng([seed, *setting.name.encode()])
    order = chance.permutation(len(kinds))
    columns = [_machine(setting, kinds[order[i % len(kinds)]], iterations, chance) for i in range(machines)]
    speed, expected, cpu, memory = (np.stack(parts, axis=1) for parts in zip(*columns, strict=True))
    return Series(speed=speed, expected=expected, cpu=cpu, memory=memory)


def _machine(
    setting: Setting, kind: Kind, iterations: int, chance: np.random.Generator
) -> tuple[Array, Array, Array, Array]:
    steps = (BURN_IN + iterations) * STEPS
    busier = chance.lognormal(0.0, 0.5)
    tasks = chance.poisson(setting.arrivals * busier * (BURN_IN + iterations))
    starts = chance.integers(0, steps, tasks)
    stays = np.maximum(1, chance.lognormal(np.log(setting.stay) - 0.5, 1.0, tasks) * STEPS).astype(np.int64)
    cores = chance.uniform(*setting.cores, tasks) / kind.cores
    gib = chance.uniform(*setting.memory_gib, tasks) / kind.memory_gib
    seen = chance.random(tasks) >= setting.unseen

    own = OWN_MEMORY * 32 / kind.memory_gib
    used = np.minimum(1.0, _load(starts, stays, cores, steps))
    full = np.minimum(1.0, own + _load(starts, stays, gib, steps))
    slowed = _response(setting, 1.0 - used) / (1.0 + SWAP_SLOPE * np.maximum(0.0, full - SWAP_FROM))
    mean = slowed.reshape(-1, STEPS).mean(axis=1)[BURN_IN:]
    expected = kind.cores * kind.core_speed * SPEED_PER_CORE * mean
    speed = expected * (chance.lognormal(0.0, setting.noise, iterations) * _spikes(setting, iterations, chance))

    shown = np.minimum(1.0, _load(starts[seen], stays[seen], cores[seen], steps))
    shown_memory = np.minimum(1.0, own + _load(starts[seen], stays[seen], gib[seen], steps))
    return speed, expected, _reading(shown, chance), _reading(shown_memory, chance)


def _load(starts: NDArray[np.int64], stays: NDArray[np.int64], amounts: Array, steps: int) -> Array:
    """The total use by all tasks at each step."""
    change = np.zeros(steps + 1)
    np.add.at(change, starts, amounts)
    np.add.at(change, np.minimum(starts + stays, steps), -amounts)
    return np.maximum(0.0, np.cumsum(change)[:-1])


def _response(setting: Setting, left: Array) -> Array:
    left = np.maximum(LEAST_LEFT, left)
    if not setting.saturation:
        return left
    scaled: Array = -np.expm1(-setting.saturation * left) / -np.expm1(-setting.saturation)
    return scaled


def _spikes(setting: Setting, iterations: int, chance: np.random.Generator) -> Array:
    factors = np.ones(iterations)
    for begin in np.flatnonzero(chance.random(iterations) < setting.spikes):
        factors[begin : begin + chance.integers(1, 3)] = chance.uniform(*setting.spike_factor)
    return factors


def _reading(truth: Array, chance: np.random.Generator) -> Array:
    at_begin = truth[::STEPS][BURN_IN:]
    return np.clip(at_begin + chance.normal(0.0, READING_SIGMA, at_begin.shape), 0.0, 1.0)
