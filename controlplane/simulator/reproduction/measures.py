"""Measures that are more than a ratio of two metrics."""

import statistics
from collections.abc import Sequence

from controlplane.simulator.gpus import EQUILIBRIUM
from controlplane.simulator.reproduction.claims import Measure, Played

Phases = Sequence[tuple[int, int]]


def of_equilibrium(played: Sequence[Played]) -> float:
    """The largest difference of a share from the paper's equilibrium, as a part of all samples."""
    wanted = list(EQUILIBRIUM.values())
    return max(abs(share - want) for share, want in zip(played[0].outcome.shares, wanted, strict=True)) / sum(wanted)


def iterations_to_balance(played: Sequence[Played]) -> float | None:
    """The first iteration from which on ten in a row are on average within 10 % of the last thirty."""
    spans = played[0].spans
    final = statistics.fmean(spans[-30:])
    near = (k for k in range(len(spans) - 10) if statistics.fmean(spans[k : k + 10]) <= 1.1 * final)
    return next((float(k) for k in near), None)


def share_of(rank: int, before: int) -> Measure:
    """A worker's last share over what it was."""
    return lambda played: played[0].outcome.shares[rank] / before


def within(phases: Phases) -> Measure:
    """Iteration time in those phases, the first run's over the second's."""
    return lambda played: _mean_in(played[0], phases) / _mean_in(played[1], phases)


def between(phases: Phases, others: Phases) -> Measure:
    """One run's iteration time in some phases over that in others."""
    return lambda played: _mean_in(played[0], phases) / _mean_in(played[0], others)


def accuracy_change(played: Sequence[Played]) -> float | None:
    """Mean accuracy near the end, the first run's less the second's."""
    if any(not one.accuracies for one in played[:2]):
        return None
    return statistics.fmean(played[0].accuracies) - statistics.fmean(played[1].accuracies)


def accuracy_ratio(played: Sequence[Played]) -> float | None:
    """Mean accuracy near the end, the first run's over the second's."""
    if any(not one.accuracies for one in played[:2]):
        return None
    return statistics.fmean(played[0].accuracies) / statistics.fmean(played[1].accuracies)


def spread(played: Sequence[Played]) -> float:
    """Standard deviation of the workers' progress over its mean."""
    progress = played[0].outcome.progress
    return statistics.pstdev(progress) / statistics.fmean(progress)


def speed_between(from_s: float, until_s: float) -> Measure:
    """Iterations per second in that time, the first run's over the second's."""

    def measure(played: Sequence[Played]) -> float | None:
        mine, its = (_speed(one, from_s, until_s) for one in played[:2])
        return mine / its if its else None

    return measure


def speed_after(between_s: tuple[float, float], before_s: tuple[float, float]) -> Measure:
    """One run's iterations per second in one stretch of time over another."""

    def measure(played: Sequence[Played]) -> float | None:
        later, sooner = _speed(played[0], *between_s), _speed(played[0], *before_s)
        return later / sooner if sooner else None

    return measure


def slowness_between(from_s: float, until_s: float) -> Measure:
    """Iterations per second in that time, the second run's over the first's: below 1 where the first is faster."""
    faster = speed_between(from_s, until_s)
    return lambda played: faster(played[1::-1])


def suspended(played: Sequence[Played]) -> float | None:
    """Time for which moves of blocks held the first run's workers up, over that of the second run's restart."""
    spans = played[1].spans
    if not spans:
        return None
    return played[0].outcome.moving_s / (max(spans) - statistics.median(spans))


def held_up_s(played: Sequence[Played]) -> float:
    """Time for which moves of blocks held workers up."""
    return played[0].outcome.moving_s


def missed_by_size(played: Sequence[Played]) -> float | None:
    """Updates missed, not normalised: the first run's (more nodes) over the second's."""
    more, less = (one.outcome.inconsistency * len(one.outcome.progress) for one in played[:2])
    return more / less if less else None


def _mean_in(played: Played, phases: Phases) -> float:
    spans = [span for first, last in phases for span in played.spans[first:last]]
    return statistics.fmean(spans)


def _speed(played: Played, from_s: float, until_s: float) -> float:
    at_s, count = 0.0, 0
    for span in played.spans:
        at_s += span
        count += from_s <= at_s < until_s
    return count / (until_s - from_s)
