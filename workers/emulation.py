"""Emulates a slower machine: the real work, followed by a sleep until the emulated time is over."""

import random
import time
from bisect import bisect_right
from collections.abc import Callable

from controlplane.protocol.emulation import Competitor, Emulation
from workers.resources import Load

STEP_S = 1.0
"""Minimum duration of a competing process's state."""


class Rival:
    """A competing process as a function of time: each second it may start or stop."""

    def __init__(self, competitor: Competitor) -> None:
        self._competitor, self._chance = competitor, random.Random(competitor.seed)
        self._runs = [False]

    def runs(self, at_s: float) -> bool:
        """Whether it runs ``at_s`` seconds after the start."""
        step = int(at_s / STEP_S)
        while len(self._runs) <= step:
            ran, drawn = self._runs[-1], self._chance.random()
            self._runs.append(drawn >= self._competitor.ends if ran else drawn < self._competitor.begins)
        return self._runs[step]

    def left(self, at_s: float) -> float:
        """The fraction of the machine that it leaves to others."""
        return 1.0 - self._competitor.takes if self.runs(at_s) else 1.0


class Course:
    """A machine's speed and its reported load, as functions of time since the start."""

    def __init__(self, emulation: Emulation) -> None:
        self._steady, self._trace = emulation.samples_per_second, emulation.trace or []
        self._launch_s, self._saturation = emulation.launch_s, emulation.saturation
        self._times = [point.time for point in self._trace]
        self._period = self._times[-1] + self._times[-1] - self._times[-2] if emulation.repeat else None
        self._rival = Rival(emulation.competitor) if emulation.competitor else None

    @property
    def has_speed(self) -> bool:
        """Whether the duration of work is known in advance."""
        return self._steady is not None or bool(self._trace)

    def left(self, at_s: float) -> float:
        """The fraction of the machine that a competing process leaves."""
        return self._rival.left(at_s) if self._rival else 1.0

    def done_at(self, begin_s: float, samples: int) -> float:
        """When work on this many samples that started at ``begin_s`` is done, including changes of speed in between."""
        if not samples:
            return begin_s
        at_s, left = begin_s + self._launch_s, float(max(samples, self._saturation))
        while left > 0.0:
            speed, until_s = self._speed(at_s), self._next_change(at_s)
            if until_s is None or left <= speed * (until_s - at_s):
                return at_s + left / speed
            left -= speed * (until_s - at_s)
            at_s = until_s
        return at_s

    def load(self, at_s: float, real: Load) -> Load:
        """The machine's load: the trace's values plus the competing process's use."""
        if self._trace:
            point = self._trace[self._place(at_s)]
            real = Load(cpu=point.cpu, memory=point.memory)
        return Load(cpu=min(1.0, real.cpu + (1.0 - self.left(at_s))), memory=real.memory)

    def _speed(self, at_s: float) -> float:
        usual = self._trace[self._place(at_s)].speed if self._trace else self._steady
        assert usual is not None
        return usual * self.left(at_s)

    def _place(self, at_s: float) -> int:
        within_s = at_s % self._period if self._period else at_s
        return bisect_right(self._times, within_s + 1e-9) - 1

    def _next_change(self, at_s: float) -> float | None:
        changes = [(int(at_s / STEP_S) + 1) * STEP_S] if self._rival else []
        place = self._place(at_s) if self._trace else 0
        started_s = at_s - at_s % self._period if self._period else 0.0
        if place + 1 < len(self._times):
            changes.append(started_s + self._times[place + 1])
        elif self._period:
            changes.append(started_s + self._period)
        return min((change for change in changes if change > at_s + 1e-9), default=None)


class Pace:
    """Makes work take as long as on the emulated machine; without an emulation it changes nothing.

    Args:
        rest: sleeps for the given seconds; an event's ``wait``, so that stopping interrupts it.
    """

    def __init__(
        self, emulation: Emulation | None, *, rest: Callable[[float], object], now: Callable[[], float] = time.monotonic
    ) -> None:
        self._course = None if emulation is None else Course(emulation)
        self._slower = 1.0 if emulation is None or emulation.slower is None else emulation.slower
        self._rest, self._now = rest, now
        self._born = self._began = now()
        self._rested_s = 0.0

    @property
    def emulates(self) -> bool:
        """Whether a machine is emulated."""
        return self._course is not None

    def begin(self) -> None:
        """Start of the work on the samples."""
        self._began, self._rested_s = self._now(), 0.0

    def least_s(self, samples: int) -> float:
        """The minimum time for ``samples`` from now on, regardless of the real machine's speed."""
        if self._course is None or not self._course.has_speed:
            return 0.0
        at_s = self._now() - self._born
        return self._course.done_at(at_s, samples) - at_s

    def finish(self, samples: int) -> bool:
        """End of the work on ``samples``: sleep until the emulated time is over. True if it was over already: an
        overrun.
        """
        if self._course is None:
            return False
        left_s = self._due() - self._now() if not self._course.has_speed else self._due_for(samples) - self._now()
        if left_s < 0.0:
            return samples > 0
        self._rested_s += left_s
        self._rest(left_s)
        return False

    def load(self, real: Load) -> Load:
        """The machine's load."""
        return real if self._course is None else self._course.load(self._now() - self._born, real)

    def _due_for(self, samples: int) -> float:
        """When work on ``samples`` is done, at a known speed."""
        assert self._course is not None
        return self._born + self._course.done_at(self._began - self._born, samples)

    def _due(self) -> float:
        """When it is done if it takes ``slower`` times as long as the real work, without sleeps."""
        assert self._course is not None
        worked_s = self._now() - self._began - self._rested_s
        return self._began + worked_s * self._slower / self._course.left(self._began - self._born)
