"""From a figure's name to how it is drawn and which x axes it has: explicit, so that nothing is found by accident."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from frontend.figures.convergence import convergence
from frontend.figures.rows import View
from frontend.figures.workers import batch_sizes, iteration_times


@dataclass(frozen=True, slots=True, kw_only=True)
class FigureKind:
    """A figure. ``rows`` names what it is drawn from; ``x`` its axes, the default first."""

    title: str
    rows: str
    x: tuple[str, ...]
    draw: Callable[[Any, View], dict[str, Any]]


FIGURES: dict[str, FigureKind] = {
    "batch-size": FigureKind(title="Batch size", rows="traces", x=("iteration", "time"), draw=batch_sizes),
    "iteration-time": FigureKind(title="Iteration time", rows="traces", x=("iteration", "time"), draw=iteration_times),
    "convergence": FigureKind(
        title="Loss and accuracy", rows="convergence", x=("time", "iteration", "samples"), draw=convergence
    ),
}
