"""A cluster on paper: workers of given speeds, in the closed loop of shares and observations."""

import random
from collections.abc import Sequence
from typing import Any

from controlplane.core.choices import Batching, Observation, ShareDecision, ShareRequest
from controlplane.policies import registry
from controlplane.protocol.spec import Choice

COMMUNICATION_S = 0.004
WARM_UP = 2


def resolve(question: str, name: str, **parameters: Any) -> Any:
    return registry.resolve(question, Choice(name=name, parameters=parameters))


def request(
    current: dict[int, int],
    *,
    total: int | None = None,
    iteration: int = 0,
    low: int = 1,
    high: int | None = None,
) -> ShareRequest:
    total = sum(current.values()) if total is None else total
    limits = dict.fromkeys(current, (low, total if high is None else high))
    return ShareRequest(iteration=iteration, total=total, current=current, limits=limits)


def observe(
    speeds: Sequence[float],
    shares: dict[int, int],
    *,
    iteration: int = 0,
    communication_s: Sequence[float] | None = None,
    noise: random.Random | None = None,
    sigma: float = 0.05,
) -> list[Observation]:
    """One BSP iteration: the fast workers wait for the slowest."""
    factors = [noise.lognormvariate(0.0, sigma) if noise else 1.0 for _ in speeds]
    compute = {rank: shares[rank] / speeds[rank] * factors[rank] for rank in shares}
    communication = dict(enumerate(communication_s or [COMMUNICATION_S] * len(speeds)))
    ends = max(compute[rank] + communication[rank] for rank in shares)
    return [
        Observation(
            rank=rank,
            iteration=iteration,
            samples=shares[rank],
            compute_s=compute[rank],
            communication_s=communication[rank],
            waiting_s=ends - compute[rank] - communication[rank],
        )
        for rank in sorted(shares)
    ]


def train(
    batching: Batching,
    speeds: Sequence[float],
    *,
    iterations: int,
    batch_size: int = 64,
    noise: random.Random | None = None,
) -> list[ShareDecision]:
    """The decisions of a run: the first at the start, then one for each iteration."""
    current = dict.fromkeys(range(len(speeds)), batch_size)
    state, decision = batching.start(request(current), None)
    decisions = [decision]
    for iteration in range(iterations):
        seen = observe(speeds, decision.shares, iteration=iteration, noise=noise)
        state, decision = batching.decide(
            request(decision.shares, iteration=iteration + 1), seen if iteration >= WARM_UP else [], state
        )
        decisions.append(decision)
    return decisions
