"""Learning-rate schedules: the factor of the rate at each step. A step is one applied sum.

Each is a closed form of the step count, equal to torch's schedule of the name in ``SCHEDULES``: to continue from a
checkpoint, or on another server, only that count is needed.
"""

import math
from bisect import bisect_right
from collections.abc import Callable, Mapping

from controlplane.protocol.optimizers import schedule_of
from controlplane.protocol.training import Schedule


def factor(schedule: Schedule, step: int) -> float:
    """The factor of the rate in step ``step``, counted from 0; warm-up rises linearly to the full rate.

    ``inverse-sqrt`` falls with 1 / sqrt of the steps, in units of the warm-up (at least one step).
    """
    warming = min(1.0, (step + 1) / schedule.warm_up) if schedule.warm_up else 1.0
    return warming * _SHAPES[schedule_of(schedule)](schedule, max(0, step - schedule.warm_up))


def _wave(begin: float, end: float, done: float) -> float:
    """From ``begin`` to ``end`` along half a cosine, of which the fraction ``done`` has passed."""
    return end + (begin - end) * 0.5 * (1.0 + math.cos(math.pi * done))


def _cosine(schedule: Schedule, step: int) -> float:
    return _wave(1.0, schedule.floor, min(1.0, step / schedule.over))


def _restarts(schedule: Schedule, step: int) -> float:
    cycle, length = step, schedule.over
    if schedule.times == 1:
        cycle %= length
    while cycle >= length:
        cycle, length = cycle - length, length * schedule.times
    return _wave(1.0, schedule.floor, cycle / length)


def _linear(schedule: Schedule, step: int) -> float:
    return 1.0 + (schedule.floor - 1.0) * min(1.0, step / schedule.over)


def _polynomial(schedule: Schedule, step: int) -> float:
    left = math.pow(1.0 - min(1.0, step / schedule.over), schedule.power)
    return schedule.floor + (1.0 - schedule.floor) * left


def _one_cycle(schedule: Schedule, step: int) -> float:
    """Up and down within ``over`` steps: the last of them and all following ones are at the floor."""
    top, last = schedule.rise * schedule.over - 1.0, schedule.over - 1.0
    if step <= top:
        return _wave(schedule.begin, 1.0, step / top)
    return _wave(1.0, schedule.floor, min(1.0, (step - top) / (last - top)) if last > top else 1.0)


def _inverse_sqrt(schedule: Schedule, step: int) -> float:
    unit = max(1, schedule.warm_up)
    return math.sqrt(unit / (unit + step))


_SHAPES: Mapping[str, Callable[[Schedule, int], float]] = {
    "constant": lambda schedule, step: 1.0,
    "step": lambda schedule, step: schedule.factor ** (step // schedule.every),
    "multistep": lambda schedule, step: schedule.factor ** bisect_right(sorted(schedule.at), step),
    "exponential": lambda schedule, step: schedule.factor ** (step / schedule.every),
    "cosine": _cosine,
    "cosine-restarts": _restarts,
    "linear": _linear,
    "polynomial": _polynomial,
    "one-cycle": _one_cycle,
    "inverse-sqrt": _inverse_sqrt,
}
