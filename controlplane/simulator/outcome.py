"""The outcome of a run, and the error of a fitted model for its own job, as plain values."""

import itertools
import statistics
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import msgspec

from controlplane.core.states import JobState
from controlplane.protocol.base import Value
from controlplane.simulator.cluster import Cluster
from controlplane.simulator.recorded_run import Run

RESOLUTION_S: Final = 1e-3
"""Resolution of the times of events."""


class Fit(Value, frozen=True, kw_only=True):
    """How well the model predicts the recorded run."""

    compared: int
    what: str
    """What is compared: iterations, or workers in asynchronous modes."""
    recorded_s: float
    """Recorded mean iteration time."""
    predicted_s: float
    error_median: float
    """Median relative error of the iteration times."""
    error_p95: float

    @property
    def error_of_mean(self) -> float:
        """Relative error of the mean iteration time."""
        return abs(self.predicted_s - self.recorded_s) / self.recorded_s if self.recorded_s else 0.0


class Outcome(Value, frozen=True, kw_only=True):
    """One scenario under one choice of policies with one seed. Times are virtual."""

    scenario: str
    policy: str
    seed: int
    state: str
    why: str
    """The reason of the last change of state."""
    seconds: float
    """From the first orders to the last update."""
    iterations: int
    """Complete iterations; in asynchronous modes, the mean over the workers."""
    updates: int
    """Updates that counted."""
    samples: int
    iteration_s: float
    """Mean after the warm-up: between two versions in lockstep, otherwise over the workers' iterations."""
    iteration_p95_s: float | None
    update_s: float
    """Time per update: the job's time divided by the number of updates."""
    waiting: float
    """Fraction of the workers' time."""
    coordination: float
    compute: float
    communication: float
    """If exchanges overlap with computing, the overlap counts in both, and the four fractions sum to more than 1."""
    shares: list[int]
    """The last shares, by rank."""
    progress: list[int]
    """Iterations of each worker."""
    inconsistency: float = 0.0
    """Updates applied between a worker's pull and its own update (PSP 6.6), divided by the number of workers: mean"""
    inconsistency_sd: float = 0.0
    """and standard deviation over all iterations of all workers."""
    moving_s: float = 0.0
    """Mean time that a worker waited for moving blocks."""
    moved_bytes: int = 0
    """Bytes moved between servers."""
    updates_to_target: int | None = None
    time_to_target_s: float | None = None
    loss: float | None = None
    accuracy: float | None = None
    """Accuracy of the last evaluation."""
    events: int
    """Number of log entries."""
    happened: int
    """Number of simulation events."""
    digest: str | None = None
    """Digest of the log and of all commands."""
    fit: Fit | None = None
    """For a recorded job under its own policies: the error against the recording."""

    def document(self) -> dict[str, Any]:
        """The outcome as JSON values."""
        document: dict[str, Any] = msgspec.to_builtins(self)
        return document


def outcome_from(document: dict[str, Any]) -> Outcome:
    """The outcome that ``document`` made."""
    return msgspec.convert(document, Outcome)


def outcome_of(cluster: Cluster, policy: str, seed: int, digest: str | None) -> Outcome:
    """The outcome of a completed run."""
    workers, servers, mathematics = cluster.workers, cluster.servers, cluster.mathematics
    total_s = sum(worker.total_s for worker in workers) or 1.0
    reports = sum(worker.reports for worker in workers)
    closed = servers.closed_s
    spans = [later - sooner for sooner, later in itertools.pairwise(closed)]
    lasted = spans[cluster.scenario.warm_up :] or spans
    if not servers.is_free(servers.version) and lasted:
        iteration_s, p95 = statistics.fmean(lasted), _percentile(lasted, 95)
    else:
        iteration_s, p95 = sum(worker.total_s for worker in workers) / max(1, reports), None
    seconds = max((worker.began_s for worker in workers), default=0.0) - cluster.began_s
    score = mathematics.scores[-1] if mathematics is not None and mathematics.scores else None
    reached = mathematics.reached if mathematics is not None else None
    missed = sum(worker.missed for worker in workers) / max(1, reports)
    spread = sum(worker.missed_squares for worker in workers) / max(1, reports) - missed * missed
    return Outcome(
        scenario=cluster.scenario.name,
        policy=policy,
        seed=seed,
        state=str(cluster.driver.state) if cluster.driver.over else str(JobState.RUNNING),
        why=cluster.driver.why,
        seconds=seconds,
        iterations=servers.version if closed else round(reports / max(1, len(workers))),
        updates=servers.updates,
        samples=sum(worker.samples for worker in workers),
        iteration_s=iteration_s,
        iteration_p95_s=p95,
        update_s=seconds / max(1, servers.updates),
        waiting=sum(worker.waiting_s for worker in workers) / total_s,
        coordination=sum(worker.coordination_s for worker in workers) / total_s,
        compute=sum(worker.compute_s for worker in workers) / total_s,
        communication=sum(worker.communication_s for worker in workers) / total_s,
        shares=[worker.share for worker in workers],
        progress=[worker.reports for worker in workers],
        inconsistency=missed / max(1, len(workers)),
        inconsistency_sd=max(0.0, spread) ** 0.5 / max(1, len(workers)),
        moving_s=sum(worker.moving_s for worker in workers) / max(1, len(workers)),
        moved_bytes=cluster.moves.moved_bytes,
        updates_to_target=reached[1] if reached else None,
        time_to_target_s=reached[0] - cluster.began_s if reached else None,
        loss=score[2] if score else None,
        accuracy=score[3] if score else None,
        events=cluster.driver.entries,
        happened=cluster.kernel.happened,
        digest=digest,
    )


def _percentile(values: list[float], percent: int) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, len(ordered) * percent // 100)]


class Lengths(NamedTuple):
    """Iteration times of one run, in seconds."""

    spans: list[float]
    """Duration of each complete iteration, from the second on."""
    workers: list[float]
    """Mean iteration time of each worker."""


def lengths_of(cluster: Cluster) -> Lengths:
    """Iteration times of a run that has ended."""
    spans = [later - sooner for sooner, later in itertools.pairwise(cluster.servers.closed_s)]
    return Lengths(spans, [worker.total_s / max(1, worker.reports) for worker in cluster.workers])


def judge(run: Run, played: Sequence[Lengths]) -> Fit:
    """Compare iterations in lockstep, otherwise workers."""
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
    """A ``Fit`` from sorted ``errors``."""
    return Fit(
        compared=len(errors),
        what=what,
        recorded_s=recorded_s,
        predicted_s=predicted_s,
        error_median=statistics.median(errors),
        error_p95=errors[min(len(errors) - 1, int(0.95 * len(errors)))],
    )


def relative_errors(predicted: Sequence[float], recorded: Sequence[float]) -> list[float]:
    """Relative error of each prediction, sorted.

    Times have a resolution of one millisecond, so two iterations may seem to end at once: none counts as shorter than
    that.
    """
    return sorted(abs(p - r) / max(r, RESOLUTION_S) for p, r in zip(predicted, recorded, strict=True))
