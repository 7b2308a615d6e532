"""Maps each figure's name to its drawing function, data and options."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from controlplane.protocol.measurements import OF_MACHINES, OF_WORKERS
from frontend.figures.comparison import compared_learning, compared_lengths
from frontend.figures.convergence import SCALES as LOSS_SCALES
from frontend.figures.convergence import convergence
from frontend.figures.heat import METRICS, SCALES, heat_map
from frontend.figures.logged import logged
from frontend.figures.machine import machine_load, speed_by_batch
from frontend.figures.measured import groups, machine_measurement, worker_measurement
from frontend.figures.pace import SPEEDS, staleness, worker_speeds
from frontend.figures.placement import COLOURS, TIMES, block_map, server_exchanges
from frontend.figures.predictions import predictions
from frontend.figures.rows import View
from frontend.figures.simulated import simulated_iterations
from frontend.figures.timeline import timeline
from frontend.figures.topology import topology
from frontend.figures.waiting import waiting_price
from frontend.figures.whatif import machine_changes, others, predictor_errors
from frontend.figures.workers import batch_sizes, iteration_times

AXES = {
    "iteration": "Iteration",
    "time": "Time",
    "update": "Updates",
    "epoch": "Epochs",
    "samples": "Samples",
    "length": "Length",
    "server": "Server",
    "worker": "Worker",
    "batch": "Batch size",
    "saved": "Time saved",
    "policy": "Policy",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One option of a figure: a query parameter and the labels of its values, the default first."""

    name: str
    title: str
    values: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A number that the user of a figure may enter: a query parameter, the label of its input, and an example."""

    name: str
    title: str
    example: str


TARGETS = (
    Entry(name="accuracy", title="Target accuracy", example="95%"),
    Entry(name="loss", title="Target loss", example="0.2"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class FigureKind:
    """A kind of figure. ``rows`` names its data; ``x`` its axes, the default first."""

    title: str
    rows: str
    x: tuple[str, ...]
    draw: Callable[[Any, View], dict[str, Any]]
    options: tuple[Option, ...] = ()
    """Options besides the axis: ``metric`` and ``scale``."""
    entries: tuple[Entry, ...] = ()
    """A subset of ``TARGETS``."""
    marked: bool = False
    """Whether decisions are marked on its horizontal axis."""
    windowed: bool = False
    """Whether it shows a movable window of iterations."""
    whole: bool = False
    """Whether it requires the full chart library, not only the cartesian bundle."""

    @property
    def measured(self) -> bool:
        """Whether it is drawn from workers' reports, which can also be downloaded."""
        return self.rows in {"traces", "convergence", "heat", "window", "measured"}

    @property
    def switches(self) -> tuple[Option, ...]:
        """All options with more than one value."""
        axis = Option(name="x", title="Horizontal axis", values={name: AXES[name] for name in self.x})
        return tuple(option for option in (*self.options, axis) if len(option.values) > 1)


FIGURES: dict[str, FigureKind] = {
    "batch-size": FigureKind(
        title="Batch size", rows="traces", x=("iteration", "time", "samples"), draw=batch_sizes, marked=True
    ),
    "iteration-time": FigureKind(
        title="Iteration time", rows="traces", x=("iteration", "time", "samples"), draw=iteration_times, marked=True
    ),
    "worker-speed": FigureKind(
        title="Speed",
        rows="traces",
        x=("iteration", "time", "samples"),
        draw=worker_speeds,
        marked=True,
        options=(Option(name="metric", title="Time base", values=SPEEDS),),
    ),
    "staleness": FigureKind(
        title="Staleness", rows="leads", x=("iteration", "time", "samples"), draw=staleness, marked=True
    ),
    "convergence": FigureKind(
        title="Loss and accuracy",
        rows="convergence",
        x=("time", "iteration", "update", "epoch", "samples"),
        draw=convergence,
        marked=True,
        options=(Option(name="scale", title="Loss axis", values=LOSS_SCALES),),
        entries=TARGETS,
    ),
    "logged": FigureKind(title="Logged series", rows="logged", x=("iteration",), draw=logged, marked=True),
    "heat-map": FigureKind(
        title="Heat map of iterations",
        rows="heat",
        x=("iteration",),
        draw=heat_map,
        marked=True,
        options=(
            Option(name="metric", title="Metric", values=METRICS),
            Option(name="scale", title="Scale", values=SCALES),
        ),
    ),
    "block-map": FigureKind(
        title="Block placement",
        rows="placement",
        x=("server",),
        draw=block_map,
        whole=True,
        options=(
            Option(name="metric", title="Colour", values=COLOURS),
            Option(name="scale", title="When", values=TIMES),
        ),
    ),
    "topology": FigureKind(title="Machines and links", rows="topology", x=("server",), draw=topology),
    "server-exchanges": FigureKind(
        title="Exchange time per server",
        rows="placement",
        x=("server",),
        draw=server_exchanges,
        options=(Option(name="scale", title="When", values=TIMES),),
    ),
    "waiting-price": FigureKind(
        title="Waiting and staleness per worker", rows="waiting", x=("worker",), draw=waiting_price
    ),
    "others": FigureKind(title="Other policies, predicted", rows="others", x=("saved",), draw=others),
    "machine-changes": FigureKind(
        title="Other cluster sizes, predicted", rows="others", x=("saved",), draw=machine_changes
    ),
    "predictions": FigureKind(
        title="Predicted and measured time", rows="predictions", x=("iteration",), draw=predictions
    ),
    "predictor-errors": FigureKind(
        title="Prediction error", rows="predictors", x=("iteration",), draw=predictor_errors
    ),
    "timeline": FigureKind(title="Timeline of iterations", rows="window", x=("time",), draw=timeline, windowed=True),
    **{
        name: FigureKind(
            title=each.chart,
            rows="measured",
            x=("iteration", "time", "samples"),
            draw=partial(worker_measurement, each),
            marked=True,
        )
        for name, (each, *_) in groups(OF_WORKERS).items()
    },
}

COMPARISONS: dict[str, FigureKind] = {
    "learning": FigureKind(
        title="Loss and accuracy",
        rows="compared",
        x=("time", "iteration", "update", "epoch", "samples"),
        draw=compared_learning,
        options=(Option(name="scale", title="Loss axis", values=LOSS_SCALES),),
    ),
    "iteration-lengths": FigureKind(
        title="Iteration time distribution", rows="compared", x=("length",), draw=compared_lengths
    ),
}
"""Figures that compare several jobs."""

MACHINES: dict[str, FigureKind] = {
    "speed-by-batch": FigureKind(title="Throughput by batch size", rows="speeds", x=("batch",), draw=speed_by_batch),
    "load": FigureKind(title="Load", rows="load", x=("time",), draw=machine_load),
    **{
        name: FigureKind(title=group[0].chart, rows="samples", x=("time",), draw=partial(machine_measurement, group))
        for name, group in groups(OF_MACHINES).items()
    },
}
"""Figures of one machine."""

SIMULATIONS: dict[str, FigureKind] = {
    "simulated-iterations": FigureKind(
        title="Iteration time by phase", rows="simulated", x=("policy",), draw=simulated_iterations
    ),
}
"""Figures of one simulation."""
