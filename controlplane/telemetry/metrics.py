"""Metrics of a worker's reports: every measurement, and values computed from several."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from controlplane.protocol.measurements import OF_WORKERS
from controlplane.telemetry.columns import summed

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
        """All columns that the metric needs."""
        return self.columns + self.per

    def values(self, columns: Sequence[Column]) -> Column:
        """The metric from ``all_columns``, in their order; NaN if it has no value."""
        whole = summed(columns[: len(self.columns)])
        if not self.per:
            return np.asarray(whole, dtype=np.float64)
        base = summed(columns[len(self.columns) :])
        return np.asarray(np.divide(whole, base, out=np.full_like(base, np.nan), where=base > 0), dtype=np.float64)


PROCESSING = ("data_s", "compute_s")
"""Loading samples, and computing on them."""
BUSY = (*PROCESSING, "push_s", "pull_s")
LOST = ("waiting_s", "coordination_s")
"""Waiting for other workers, and for the control plane."""
ITERATION = (*BUSY, *LOST)
"""Parts of an iteration, in order. A part that was not measured separately adds nothing to a sum (``summed``)."""

METRICS: dict[str, Metric] = {
    **{each.name: Metric(unit=each.unit, title=each.title, columns=(each.name,)) for each in OF_WORKERS},
    "iteration_s": Metric(unit="s", title="the whole iteration", columns=ITERATION),
    "busy_s": Metric(unit="s", title="data loading, computation and communication", columns=BUSY),
    "communication_s": Metric(unit="s", title="push and pull", columns=("push_s", "pull_s")),
    "speed": Metric(unit="samples/s", title="samples by busy time", columns=("samples",), per=BUSY),
    "throughput": Metric(unit="samples/s", title="samples by iteration time", columns=("samples",), per=ITERATION),
}

EVALUATION_METRICS: dict[str, Metric] = {
    "accuracy": Metric(unit="", title="accuracy on the held-out split", columns=("accuracy",)),
    "evaluation_loss": Metric(unit="", title="loss on the held-out split", columns=("loss",)),
}
"""Metrics of the job as a whole: one evaluator scores the held-out split."""
