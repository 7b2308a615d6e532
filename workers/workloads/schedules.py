"""Learning-rate schedules: what share of the rate a step takes. A step is one sum that was applied."""

import math
from collections.abc import Callable, Mapping

from controlplane.protocol.training import Schedule


def factor(schedule: Schedule, step: int) -> float:
    """What the rate is multiplied by in step ``step``, counted from 0; warm-up rises evenly to the full rate.

    ``inverse-sqrt`` falls as 1 / sqrt of the steps, in units of the warm-up (at least one step).
    """
    warming = min(1.0, (step + 1) / schedule.warm_up) if schedule.warm_up else 1.0
    return warming * _SHAPES[schedule.name](schedule, max(0, step - schedule.warm_up))


def _cosine(schedule: Schedule, step: int) -> float:
    wave = 0.5 * (1.0 + math.cos(math.pi * min(1.0, step / schedule.over)))
    return schedule.floor + (1.0 - schedule.floor) * wave


def _inverse_sqrt(schedule: Schedule, step: int) -> float:
    unit = max(1, schedule.warm_up)
    return math.sqrt(unit / (unit + step))


_SHAPES: Mapping[str, Callable[[Schedule, int], float]] = {
    "constant": lambda schedule, step: 1.0,
    "step": lambda schedule, step: schedule.factor ** (step // schedule.every),
    "cosine": _cosine,
    "inverse-sqrt": _inverse_sqrt,
}
