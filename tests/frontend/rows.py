"""Small hand-made columns for figures."""

import numpy as np

from frontend.figures.rows import Convergence, Traces, WorkerTrace


def worker(rank: int, shares: list[int], compute_s: list[float], waiting_s: list[float]) -> WorkerTrace:
    """A worker with one entry per iteration."""
    count = len(shares)
    return WorkerTrace(
        rank=rank,
        label=f"w{rank}",
        iteration=np.arange(count),
        elapsed_s=np.arange(1, count + 1) * 0.25,
        lowest=np.array(shares),
        highest=np.array(shares),
        compute_s=np.array(compute_s),
        communication_s=np.full(count, 0.004),
        waiting_s=np.array(waiting_s),
        coordination_s=np.full(count, 0.001),
    )


def two_workers() -> Traces:
    """A fast and a slow worker over three iterations: even, then balanced."""
    fast = worker(0, [64, 64, 102], [0.064, 0.064, 0.102], [0.192, 0.192, 0.002])
    slow = worker(1, [64, 64, 26], [0.256, 0.256, 0.104], [0.0, 0.0, 0.0])
    return Traces(workers=(fast, slow), roster=2, width=1, reports=6)


def no_workers() -> Traces:
    """A job that has not begun."""
    return Traces(workers=(), roster=2, width=1, reports=0)


def learning(points: int = 3) -> Convergence:
    """Loss that falls, and two scores."""
    iteration = np.arange(points)
    return Convergence(
        iteration=iteration,
        elapsed_s=(iteration + 1) * 0.25,
        samples=(iteration + 1) * 128,
        loss=2.3 / (1 + 0.5 * iteration),
        reports=2 * points,
        scored_iteration=np.array([0, points]),
        scored_elapsed_s=np.array([0.1, points * 0.25]),
        scored_samples=np.array([0, points * 128]),
        scored_loss=np.array([2.3, 0.9]),
        scored_accuracy=np.array([0.1, 0.85]),
        target=0.95,
    )


def nothing_learned() -> Convergence:
    """Neither a report nor a score."""
    none, whole = np.empty(0), np.empty(0, np.int64)
    return Convergence(
        iteration=whole,
        elapsed_s=none,
        samples=whole,
        loss=none,
        reports=0,
        scored_iteration=whole,
        scored_elapsed_s=none,
        scored_samples=whole,
        scored_loss=none,
        scored_accuracy=none,
        target=None,
    )
