"""What came of a run, and how runs compare: plain values for tables, documents and tests."""

import itertools
import statistics
from typing import Any

import msgspec

from controlplane.core.states import JobState
from controlplane.protocol.base import Value
from controlplane.simulator.cluster import Cluster
from controlplane.simulator.fitting import Fit


class Outcome(Value, frozen=True, kw_only=True):
    """One scenario under one choice of policies with one seed. Times are virtual."""

    scenario: str
    policy: str
    seed: int
    state: str
    why: str
    """Of the last change of state."""
    seconds: float
    """From the first orders to the last update."""
    iterations: int
    """Closed by a quorum; in asynchronous modes, the mean of the workers' own."""
    updates: int
    """Contributions that counted."""
    samples: int
    iteration_s: float
    """Mean, past the warm-up: between two versions where there are such, else of the workers' own."""
    iteration_p95_s: float | None
    update_s: float
    """Time per update: that of the job over the number of updates."""
    waiting: float
    """Part of the workers' time."""
    coordination: float
    compute: float
    communication: float
    shares: list[int]
    """The last, by rank."""
    progress: list[int]
    """Iterations of each worker."""
    inconsistency: float = 0.0
    """Updates that took effect between a worker's pull and its own (PSP 6.6), over the number of workers: mean"""
    inconsistency_sd: float = 0.0
    """and standard deviation over all iterations of all workers."""
    moving_s: float = 0.0
    """Mean time of a worker that waited for blocks on their way between servers."""
    moved_bytes: int = 0
    """That servers handed to one another."""
    updates_to_target: int | None = None
    time_to_target_s: float | None = None
    loss: float | None = None
    accuracy: float | None = None
    """Of the last evaluation."""
    events: int
    """Entries of the log."""
    happened: int
    """Events of the simulation."""
    digest: str | None = None
    """Of the bytes of the log and of all commands."""
    fit: Fit | None = None
    """Of a recorded job under the policies that it had: how far this is from what was recorded."""

    def document(self) -> dict[str, Any]:
        """As JSON has it."""
        document: dict[str, Any] = msgspec.to_builtins(self)
        return document


def outcome_from(document: dict[str, Any]) -> Outcome:
    """The outcome that ``document`` made."""
    return msgspec.convert(document, Outcome)


def outcome_of(cluster: Cluster, policy: str, seed: int, digest: str | None) -> Outcome:
    """What came of a run that has ended."""
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
