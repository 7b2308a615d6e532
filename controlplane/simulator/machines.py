"""How long a machine takes for its samples: CPU machines, GPUs, and machines that others use too.

The frozen parts are the scenario's settings; ``build_machine`` builds from them the machine that a simulated worker
uses. All randomness depends on the seed and the worker's rank, never on the order of events, so every policy has the
same machines.
"""

from collections.abc import Sequence
from typing import Annotated, Protocol

import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from controlplane.protocol.base import Fraction, Positive, Seconds
from controlplane.protocol.spec import Part
from controlplane.simulator.background import Array, Background, Competitor, competing_load, generated_load, speed_left
from controlplane.simulator.disturbances import Disturbances
from controlplane.simulator.errors import ScenarioError
from controlplane.simulator.learned_machine import Recorded, RecordedMachine
from controlplane.simulator.series import Series

Speed = Annotated[float, Meta(gt=0.0, description="Samples per second.")]


class SlowPeriod(Part, frozen=True, kw_only=True):
    """Iterations that begin within it take ``times`` as long."""

    times: Annotated[float, Meta(gt=0.0)]
    from_s: Seconds = 0.0
    until_s: float = float("inf")


class CpuMachine(Part, frozen=True, kw_only=True, tag="cpu"):
    """Samples one after another at a constant speed: t = overhead + x / v, ``slowness`` times as long."""

    samples_per_second: Speed
    overhead_s: Seconds = 0.0
    slowness: Annotated[float, Meta(gt=0.0)] = 1.0
    slow: tuple[SlowPeriod, ...] = ()


class GpuMachine(Part, frozen=True, kw_only=True, tag="gpu"):
    """A batch at once: t = launch + max(x, saturation) * seconds_per_sample (LB-BSP 3.3.1)."""

    launch_s: Seconds
    seconds_per_sample: Annotated[float, Meta(gt=0.0)]
    saturation: int = 0
    """Fewer samples than this take the same time."""
    memory_samples: Positive
    """How many samples fit into its memory."""
    slow: tuple[SlowPeriod, ...] = ()


class SharedMachine(Part, frozen=True, kw_only=True, tag="shared"):
    """A CPU machine on which training gets the capacity that other tasks leave (LB-BSP 5.3)."""

    samples_per_second: Speed
    """When no other process uses it."""
    cores: Positive = 8
    memory_gib: Positive = 32
    background: Background = Background()


class CompetingMachine(Part, frozen=True, kw_only=True, tag="competing"):
    """A CPU machine with one competing process that runs and sleeps (LB-BSP 5.4.2)."""

    samples_per_second: Speed
    competitor: Competitor


class TracedMachine(Part, frozen=True, kw_only=True, tag="traced"):
    """A CPU machine whose CPU and memory use by others was recorded, in equal steps."""

    samples_per_second: Speed
    cpu: tuple[Fraction, ...]
    memory: tuple[Fraction, ...]
    step_s: Annotated[float, Meta(gt=0.0)]
    repeats: bool = False


MachineSpec = CpuMachine | GpuMachine | SharedMachine | CompetingMachine | TracedMachine | RecordedMachine


class Machine(Protocol):
    """The interface of a simulated worker to its machine. Times are virtual, in seconds."""

    interruptible: bool
    """Whether work can be stopped after any sample."""

    def finish_s(self, samples: int, began_s: float, iteration: int) -> float:
        """When the samples will be processed."""

    def processed(self, samples: int, began_s: float, now_s: float, iteration: int) -> int:
        """How many of the samples are processed by ``now_s``."""

    def load(self, at_s: float, samples: int) -> tuple[float, float]:
        """CPU and memory use, as fractions, after processing ``samples`` samples."""


class Batch:
    """A machine whose time depends only on the number of samples and the iteration."""

    __slots__ = ("_each_s", "_fixed_s", "_rank", "interruptible", "least", "most", "slow", "wavering")

    def __init__(self, spec: CpuMachine | GpuMachine, rank: int, wavering: Disturbances) -> None:
        self._rank, self.wavering, self.slow = rank, wavering, spec.slow
        self.interruptible = isinstance(spec, CpuMachine)
        if isinstance(spec, CpuMachine):
            self._fixed_s = spec.overhead_s * spec.slowness
            self._each_s = spec.slowness / spec.samples_per_second
            self.least, self.most = 0, None
        else:
            self._fixed_s, self._each_s = spec.launch_s, spec.seconds_per_sample
            self.least, self.most = spec.saturation, spec.memory_samples

    @property
    def parts_s(self) -> tuple[float, float]:
        """Fixed time, and time per sample."""
        return self._fixed_s, self._each_s

    def finish_s(self, samples: int, began_s: float, iteration: int) -> float:
        """When the samples will be processed.

        Raises:
            ScenarioError: for a batch that does not fit into a GPU's memory.
        """
        if self.most is not None and samples > self.most:
            raise ScenarioError(
                f"machine of w{self._rank}", f"a share of {samples}", f"at most the {self.most} samples that fit"
            )
        counted = samples if samples > self.least else self.least
        return began_s + (self._fixed_s + counted * self._each_s) * self._factor(began_s, iteration)

    def processed(self, samples: int, began_s: float, now_s: float, iteration: int) -> int:
        """Samples are processed one after another, after the fixed part."""
        inside_s = now_s - began_s - self._fixed_s * self._factor(began_s, iteration)
        each_s = self._each_s * self._factor(began_s, iteration)
        return max(0, min(samples, int(inside_s / each_s + 1e-9)))

    def load(self, at_s: float, samples: int) -> tuple[float, float]:
        """No other process uses it; a GPU's memory is filled by its batch."""
        return 0.0, samples / self.most if self.most is not None else 0.0

    def _factor(self, began_s: float, iteration: int) -> float:
        factor = self.wavering.factor(self._rank, iteration)
        for period in self.slow:
            if period.from_s <= began_s < period.until_s:
                factor *= period.times
        return factor


class Machines:
    """All machines of a job, by rank, evaluated together; machines of constant speed are evaluated as arrays."""

    def __init__(self, machines: Sequence[Machine]) -> None:
        self._machines = machines
        plain = [machine for machine in machines if isinstance(machine, Batch) and not machine.slow]
        self._wavering = plain[0].wavering if plain else None
        self._is_array = len(plain) == len(machines) and all(each.wavering is self._wavering for each in plain)
        if self._is_array:
            self._fixed_s, self._each_s = np.array([each.parts_s for each in plain]).T
            self._least = np.array([each.least for each in plain])
            self._most = np.array([float("inf") if each.most is None else each.most for each in plain])

    def finish_s(self, ranks: NDArray[np.int64], samples: NDArray[np.int64], began_s: Array, iteration: int) -> Array:
        """``Machine.finish_s`` of these ranks; raises the same errors."""
        if self._is_array and self._wavering is not None and not (samples > self._most[ranks]).any():
            counted = np.maximum(samples, self._least[ranks])
            lasts_s = self._fixed_s[ranks] + counted * self._each_s[ranks]
            finish: Array = began_s + lasts_s * self._wavering.factors(ranks, iteration)
            return finish
        asked = zip(ranks.tolist(), samples.tolist(), began_s.tolist(), strict=True)
        return np.array([self._machines[rank].finish_s(count, at_s, iteration) for rank, count, at_s in asked])

    def loads(
        self, ranks: NDArray[np.int64], at_s: Sequence[float], samples: NDArray[np.int64]
    ) -> tuple[list[float], list[float]]:
        """``Machine.load`` of these ranks: an array of CPU use and one of memory use."""
        if self._is_array:
            return [0.0] * len(ranks), (samples / self._most[ranks]).tolist()
        asked = zip(ranks.tolist(), at_s, samples.tolist(), strict=True)
        both = [self._machines[rank].load(seconds, count) for rank, seconds, count in asked]
        return [cpu for cpu, _ in both], [memory for _, memory in both]


class Leftover:
    """A machine whose speed is what other processes leave: x is the integral of v over time."""

    __slots__ = ("_cpu", "_memory", "_rank", "_speed", "_wavering", "interruptible")

    def __init__(self, speed: Series, cpu: Series, memory: Series, rank: int, wavering: Disturbances) -> None:
        self._speed, self._cpu, self._memory = speed, cpu, memory
        self._rank, self._wavering = rank, wavering
        self.interruptible = True

    def finish_s(self, samples: int, began_s: float, iteration: int) -> float:
        """When the integral of its speed reaches the samples; a disturbance increases the work."""
        return self._speed.finish_s(began_s, samples * self._wavering.factor(self._rank, iteration))

    def processed(self, samples: int, began_s: float, now_s: float, iteration: int) -> int:
        """The integral of its speed so far."""
        done = self._speed.done_by(now_s) - self._speed.done_by(began_s)
        return max(0, min(samples, int(done / self._wavering.factor(self._rank, iteration) + 1e-9)))

    def load(self, at_s: float, samples: int) -> tuple[float, float]:
        """The values of its series."""
        return self._cpu.at(at_s), self._memory.at(at_s)


def build_machine(spec: MachineSpec, *, rank: int, seed: int, length_s: float, wavering: Disturbances) -> Machine:
    """The machine of worker ``rank``; generated series last ``length_s``.

    Raises:
        ScenarioError: for invalid series.
    """
    if isinstance(spec, CpuMachine | GpuMachine):
        return Batch(spec, rank, wavering)
    if isinstance(spec, RecordedMachine):
        return Recorded(spec, seed)
    chance = np.random.default_rng([seed, rank])
    name = f"machine of w{rank}"
    if isinstance(spec, TracedMachine):
        if len(spec.cpu) != len(spec.memory):
            raise ScenarioError(name, f"{len(spec.cpu)} CPU and {len(spec.memory)} memory values", "as many of each")
        cpu, memory, step_s, repeats = np.array(spec.cpu), np.array(spec.memory), spec.step_s, spec.repeats
    elif isinstance(spec, CompetingMachine):
        cpu, memory = competing_load(spec.competitor, length_s, chance)
        step_s, repeats = spec.competitor.step_s, True
    else:
        cpu, memory = generated_load(spec.background, spec.cores, spec.memory_gib, length_s, chance)
        step_s, repeats = spec.background.step_s, True
    speeds = spec.samples_per_second * speed_left(cpu, memory)
    return Leftover(
        _series(speeds, step_s, f"{name}, speed", repeats),
        _series(cpu, step_s, f"{name}, CPU", repeats),
        _series(memory, step_s, f"{name}, memory", repeats),
        rank,
        wavering,
    )


def _series(values: Array, step_s: float, name: str, repeats: bool) -> Series:
    return Series(values.tolist(), step_s=step_s, name=name, repeats=repeats)
