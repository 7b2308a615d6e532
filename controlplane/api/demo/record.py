"""Collects the measurements of one run from REST and computes results from them. Pure."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from statistics import fmean

from controlplane.telemetry.metrics import LOST
from paceline.client.columns import Series

SETTLED_FROM = 30
"""First iteration in which LB-BSP's shares have settled."""

LAST = 20
METRICS = ("iteration_s", "waiting_s", "coordination_s", "samples", "loss", "accuracy")

ByIteration = dict[int, dict[int, float]]
"""Values by iteration and worker."""


@dataclass(slots=True)
class Record:
    """One run's measurements by metric, iteration and rank; extended while the run continues."""

    series: dict[str, ByIteration] = field(default_factory=lambda: {metric: defaultdict(dict) for metric in METRICS})
    accuracy: dict[int, float] = field(default_factory=dict)
    """Evaluations by the number of updates before them."""

    def absorb(self, rows: Iterable[Series]) -> None:
        """Add series of the job; known values are overwritten."""
        for row in rows:
            for iteration, value in zip(row.iterations, row.values, strict=True):
                if row.metric == "accuracy":
                    self.accuracy[iteration] = value
                elif row.worker is not None:
                    self.series[row.metric][iteration][row.worker] = value

    @property
    def iterations(self) -> list[int]:
        """Iterations with at least one report, in order."""
        return sorted(self.series["iteration_s"])

    def mean_iteration_s(self, since: int = SETTLED_FROM) -> float:
        """Mean over workers and iterations from ``since`` on."""
        return _mean(self.series["iteration_s"], (k for k in self.iterations if k >= since))

    def lost_share(self, since: int = 0) -> float:
        """Waiting and coordination, as a share of all workers' time."""
        kept = [k for k in self.iterations if k >= since]
        whole = sum(sum(self.series["iteration_s"][k].values()) for k in kept)
        lost = sum(sum(self.series[name][k].values()) for name in LOST for k in kept)
        return lost / whole if whole else 0.0

    def seconds_to(self, target: float) -> float | None:
        """Training time until an evaluation reached ``target``; None if none did."""
        reached = min((k for k, accuracy in self.accuracy.items() if accuracy >= target), default=None)
        if reached is None:
            return None
        return sum(fmean(self.series["iteration_s"][k].values()) for k in self.iterations if k < reached)

    def clock_s(self, before: int | None = None) -> float:
        """Training time on the clock of the first worker, which also evaluates: of its iterations before ``before``."""
        row = self.series["iteration_s"]
        return sum(row[k][0] for k in row if 0 in row[k] and (before is None or k < before))

    def clock_to(self, target: float) -> float | None:
        """That time until an evaluation reached ``target``; None if none did."""
        reached = min((k for k, accuracy in self.accuracy.items() if accuracy >= target), default=None)
        return None if reached is None else self.clock_s(reached)

    def processed(self) -> int:
        """Samples of all workers together."""
        return int(sum(sum(row.values()) for row in self.series["samples"].values()))

    def updates(self) -> int:
        """Reports of all workers together."""
        return sum(len(row) for row in self.series["samples"].values())

    def final_accuracy(self) -> float:
        """Accuracy of the last evaluation; 0 if there was none."""
        return self.accuracy[max(self.accuracy)] if self.accuracy else 0.0

    def settled_shares(self) -> dict[int, float]:
        """Each worker's mean share over the last iterations."""
        shares = self.series["samples"]
        ranks = sorted({rank for row in shares.values() for rank in row})
        last = sorted(shares)[-LAST:]
        return {rank: fmean(shares[k][rank] for k in last if rank in shares[k]) for rank in ranks}

    def recent(self, metric: str) -> float | None:
        """Mean over the last few iterations, for display."""
        last = self.iterations[-10:]
        return _mean(self.series[metric], last) if last else None

    def recent_lost_share(self) -> float | None:
        """``lost_share`` over the last few iterations."""
        last = self.iterations[-10:]
        return self.lost_share(last[0]) if last else None


def _mean(series: ByIteration, iterations: Iterable[int]) -> float:
    values = [value for k in iterations for value in series[k].values()]
    return fmean(values) if values else float("nan")
