"""Local training of federated clients: a round of steps on a client's own samples (LB-BSP 3.5)."""

from collections.abc import Sequence

import numpy as np

from controlplane.simulator.numerics.problems import Array, Indices, Problem
from controlplane.simulator.numerics.settings import Federated


def local_changes(
    problem: Problem,
    starts: Array,
    draws: Sequence[Sequence[Indices]],
    rates: Sequence[float],
) -> tuple[Array, Array]:
    """By how much each client's parameters decreased in the round, and its mean loss in the last step.

    Args:
        problem: the model.
        starts: ``(clients, p)`` parameters at the beginning of the round.
        draws: for each client, the samples of each step.
        rates: the learning rate of each client.
    """
    current = starts.copy()
    losses = np.zeros(len(draws))
    for step in range(max(len(of_client) for of_client in draws)):
        active = [row for row, of_client in enumerate(draws) if step < len(of_client)]
        batches = [draws[row][step] for row in active]
        samples, mask = stacked(batches)
        gradients, summed = problem.sums(current[active], samples, mask)
        for at, row in enumerate(active):
            current[row] -= rates[row] * gradients[at] / len(batches[at])
            losses[row] = summed[at] / len(batches[at])
    return starts - current, losses


def steps_and_batch(settings: Federated, share: int, batch: int) -> tuple[int, int, float]:
    """Steps, samples per step, and factor of the learning rate for a client whose share is ``share`` and whose usual
    batch is ``batch``.
    """
    if settings.scales == "steps":
        return max(1, round(settings.local_steps * share / batch)), batch, 1.0
    return settings.local_steps, share, share / batch if settings.scales == "rate" else 1.0


def stacked(shares: Sequence[Indices]) -> tuple[Indices, Array]:
    """Stack shares of unequal length, with padding and a mask."""
    longest = max(1, *(len(share) for share in shares)) if shares else 1
    samples = np.zeros((len(shares), longest), dtype=np.int64)
    mask = np.zeros((len(shares), longest))
    for row, share in enumerate(shares):
        samples[row, : len(share)] = share
        mask[row, : len(share)] = 1.0
    return samples, mask
