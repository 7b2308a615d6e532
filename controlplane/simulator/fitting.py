"""How well a model fitted to a recorded job predicts that job, simulated with its own policies."""

import itertools
import statistics
from collections.abc import Sequence
from typing import Final, NamedTuple

from controlplane.protocol.base import Value
from controlplane.simulator.cluster import Cluster
from controlplane.simulator.recorded_run import Run

RESOLUTION_S: Final = 1e-3
"""Of the times of events."""


class Fit(Value, frozen=True, kw_only=True):
    """How well the model predicts the recorded run."""

    compared: int
    what: str
    """Iterations, or workers where each goes its own way."""
    recorded_s: float
    """Mean iteration time as it was recorded."""
    predicted_s: float
    error_median: float
    """Of the iteration times, relative to the recorded ones."""
    error_p95: float

    @property
    def error_of_mean(self) -> float:
        """Of the mean iteration time."""
        return abs(self.predicted_s - self.recorded_s) / self.recorded_s if self.recorded_s else 0.0


class Lengths(NamedTuple):
    """Of one run, in seconds."""

    spans: list[float]
    """How long each closed iteration took, from the second on."""
    workers: list[float]
    """Mean iteration time of each."""


def lengths_of(cluster: Cluster) -> Lengths:
    """Of a run that has ended."""
    spans = [later - sooner for sooner, later in itertools.pairwise(cluster.servers.closed_s)]
    return Lengths(spans, [worker.total_s / max(1, worker.reports) for worker in cluster.workers])


def judge(run: Run, played: Sequence[Lengths]) -> Fit:
    """By iteration in lockstep, else by worker."""
    changed_at = run.changed_at if run.changed_at is not None else len(played[0].spans) + 2
    compared = [k for k in run.iteration_s if 1 < k < changed_at and all(k <= len(each.spans) for each in played)]
    if compared:
        recorded = [run.iteration_s[k] for k in compared]
        predicted = [statistics.fmean(each.spans[k - 1] for each in played) for k in compared]
        what = "iterations"
    else:
        stay = [rank for rank in run.samples if rank not in run.left_s]
        recorded = [statistics.fmean(sample.total_s for sample in run.samples[rank]) for rank in stay]
        predicted = [statistics.fmean(each.workers[rank] for each in played) for rank in stay]
        what = "workers"
    errors = relative_errors(predicted, recorded)
    return fit_of(what, errors, recorded_s=statistics.fmean(recorded), predicted_s=statistics.fmean(predicted))


def fit_of(what: str, errors: Sequence[float], *, recorded_s: float, predicted_s: float) -> Fit:
    """Of ``errors`` from the least on."""
    return Fit(
        compared=len(errors),
        what=what,
        recorded_s=recorded_s,
        predicted_s=predicted_s,
        error_median=statistics.median(errors),
        error_p95=errors[min(len(errors) - 1, int(0.95 * len(errors)))],
    )


def relative_errors(predicted: Sequence[float], recorded: Sequence[float]) -> list[float]:
    """By how much each prediction misses what was recorded, over what was recorded, from the least on.

    Events have times to the millisecond, so two iterations may seem to end at once: none counts as shorter than that.
    """
    return sorted(abs(p - r) / max(r, RESOLUTION_S) for p, r in zip(predicted, recorded, strict=True))
