"""What can be plotted of a worker's reports: names, units, and how each comes from the columns of ``Report``."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Column = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """A number per worker and iteration: the sum of ``columns``, or their ratio to ``per``."""

    unit: str
    title: str
    columns: tuple[str, ...]
    per: tuple[str, ...] = ()

    @property
    def all_columns(self) -> tuple[str, ...]:
        """Every column that is read for it."""
        return self.columns + self.per

    def values(self, columns: Sequence[Column]) -> Column:
        """The metric, from ``all_columns`` in their order; not a number where it has no value."""
        whole = np.sum(columns[: len(self.columns)], axis=0)
        if not self.per:
            return np.asarray(whole, dtype=np.float64)
        base = np.sum(columns[len(self.columns) :], axis=0)
        return np.asarray(np.divide(whole, base, out=np.full_like(base, np.nan), where=base > 0), dtype=np.float64)


BUSY = ("compute_s", "push_s", "pull_s")
LOST = ("waiting_s", "coordination_s")
"""Waiting for other workers, and for the control plane."""
ITERATION = (*BUSY, *LOST)

METRICS: dict[str, Metric] = {
    "samples": Metric(unit="samples", title="share: samples of the iteration", columns=("samples",)),
    "loss": Metric(unit="", title="mean training loss over the samples", columns=("loss",)),
    "iteration_s": Metric(unit="s", title="the whole iteration", columns=ITERATION),
    "busy_s": Metric(unit="s", title="computation and communication", columns=BUSY),
    "compute_s": Metric(unit="s", title="computation", columns=("compute_s",)),
    "communication_s": Metric(unit="s", title="push and pull", columns=("push_s", "pull_s")),
    "push_s": Metric(unit="s", title="push", columns=("push_s",)),
    "pull_s": Metric(unit="s", title="pull, less the time it was held", columns=("pull_s",)),
    "waiting_s": Metric(unit="s", title="waiting for others", columns=("waiting_s",)),
    "coordination_s": Metric(unit="s", title="waiting for the control plane", columns=("coordination_s",)),
    "speed": Metric(unit="samples/s", title="samples by busy time", columns=("samples",), per=BUSY),
    "throughput": Metric(unit="samples/s", title="samples by iteration time", columns=("samples",), per=ITERATION),
    "cpu": Metric(unit="", title="CPU use of the machine, 0 to 1", columns=("cpu",)),
    "memory": Metric(unit="", title="memory use of the machine, 0 to 1", columns=("memory",)),
}

EVALUATION_METRICS: dict[str, Metric] = {
    "accuracy": Metric(unit="", title="accuracy on the held-out split", columns=("accuracy",)),
    "evaluation_loss": Metric(unit="", title="loss on the held-out split", columns=("loss",)),
}
"""Of the job as a whole: one evaluator scores the held-out split."""
