"""The rules of aggregation: the weight of each contribution, and the local work of a federated client in a round.

A server sums contributions times their weights; the weights of all counting contributions sum to 1. A rule is a
function from samples to weights; it is the same on every server, and the roster contains its name. The workload defines
what a contribution *is*: gradients (a mean over the samples), parameters after local steps, or sums with their counts
(k-means, matrix factorisation), for which ``weighted by samples`` of the means is exactly sum over count (Eq. 7, ruling
7).

In a federation (LB-BSP section 3.5, Fig. 13) three ways scale a client's load by its speed. LB-BSP scales the batch and
does not change the learning rate and the number of local steps tau, so that every client's data have the same weight;
scaling tau, or the rate together with the batch, are the baselines that lose accuracy there.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from controlplane.protocol.base import Value

Weights = dict[int, float]


class LocalWork(Value, frozen=True, kw_only=True):
    """What one client does in one round."""

    steps: int
    """tau: local iterations between two synchronizations."""
    batch: int
    rate: float
    """Learning rate of its local steps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One registered rule."""

    name: str
    explanation: str
    paper: str
    weigh: Callable[[Mapping[int, int]], Weights]
    """Maps the number of samples of each contribution to its weight."""
    federated: bool = False
    scale: Callable[[LocalWork, float], LocalWork] | None = None
    """Maps the usual local work and a client's speed, relative to the mean, to the client's own local work."""


def by_samples(samples: Mapping[int, int]) -> Weights:
    """All samples have equal weight (LB-BSP Eq. 7); a contribution without samples has weight 0.

    Raises:
        ValueError: if there are no samples, or a count is negative.
    """
    total = _total(samples)
    return {rank: samples[rank] / total for rank in sorted(samples)}


def equally(samples: Mapping[int, int]) -> Weights:
    """All contributions with at least one sample have equal weight.

    Raises:
        ValueError: if there are no samples, or a count is negative.
    """
    _total(samples)
    some = sum(count > 0 for count in samples.values())
    return {rank: (1 / some if samples[rank] else 0.0) for rank in sorted(samples)}


def scale_batch(usual: LocalWork, speed: float) -> LocalWork:
    """LB-BSP: the batch is scaled by the speed; tau and the learning rate stay."""
    return LocalWork(steps=usual.steps, batch=_scaled(usual.batch, speed), rate=usual.rate)


def scale_steps(usual: LocalWork, speed: float) -> LocalWork:
    """The baseline that scales tau: a fast client moves further in its own direction."""
    return LocalWork(steps=_scaled(usual.steps, speed), batch=usual.batch, rate=usual.rate)


def scale_rate(usual: LocalWork, speed: float) -> LocalWork:
    """The baseline that scales the learning rate with the batch: a fast client's data have more influence."""
    batch = _scaled(usual.batch, speed)
    return LocalWork(steps=usual.steps, batch=batch, rate=usual.rate * batch / usual.batch)


RULES: Mapping[str, Rule] = {
    rule.name: rule
    for rule in (
        Rule(
            name="sample-weighted",
            explanation="Each contribution is weighted by its number of samples.",
            paper="LB-BSP 3.4, Eq. 7",
            weigh=by_samples,
        ),
        Rule(
            name="naive",
            explanation="All contributions have equal weight. Biased if shares differ; for comparison only.",
            paper="LB-BSP 3.4",
            weigh=equally,
        ),
        Rule(
            name="fedavg",
            explanation="All clients have equal weight, and each client's batch size follows its speed.",
            paper="LB-BSP 3.5",
            weigh=equally,
            federated=True,
            scale=scale_batch,
        ),
        Rule(
            name="fedavg-scaled-steps",
            explanation="A baseline: the number of local steps follows the client's speed.",
            paper="LB-BSP 3.5, Fig. 13",
            weigh=equally,
            federated=True,
            scale=scale_steps,
        ),
        Rule(
            name="fedavg-scaled-rate",
            explanation="A baseline: the learning rate grows with the batch.",
            paper="LB-BSP 3.5, Fig. 13",
            weigh=equally,
            federated=True,
            scale=scale_rate,
        ),
    )
}
"""All rules, by name."""


def rule(name: str) -> Rule:
    """The rule of that name.

    Raises:
        ValueError: where there is none.
    """
    if name not in RULES:
        raise ValueError(f"aggregation: found {name!r}, expected one of {', '.join(sorted(RULES))}")
    return RULES[name]


def _total(samples: Mapping[int, int]) -> int:
    if negative := [rank for rank, count in sorted(samples.items()) if count < 0]:
        raise ValueError(f"w{negative[0]}: found {samples[negative[0]]} samples, expected at least 0")
    total = sum(samples.values())
    if total == 0:
        raise ValueError(f"{len(samples)} contributions: found no sample in any of them, expected at least one")
    return total


def _scaled(amount: int, speed: float) -> int:
    return max(1, round(amount * speed))
