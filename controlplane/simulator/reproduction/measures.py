"""Measures of runs, each with a name for the declarations of rows."""

import statistics
from bisect import bisect_right
from collections.abc import Sequence
from typing import Final

from controlplane.simulator.gpus import EQUILIBRIUM
from controlplane.simulator.reproduction.claims import Measure, Played

Phases = Sequence[tuple[int, int]]


TO_TARGET: Final = ("updates_to_target", "time_to_target_s")
"""Metrics for which 0 is not a valid figure: the run began at its target."""


def _metric(played: Played, metric: str) -> float | None:
    value: float | None = getattr(played.outcome, metric)
    return None if metric in TO_TARGET and not value else value


def ratio_of(metric: str) -> Measure:
    """The first run's metric divided by the second's."""

    def measure(played: Sequence[Played]) -> float | None:
        mine, its = (_metric(one, metric) for one in played[:2])
        return float(mine / its) if mine is not None and its else None

    return Measure(f"{metric}, the first over the second", measure)


def excess_of(metric: str) -> Measure:
    """The first run's metric divided by the second's, minus 1."""
    ratio = ratio_of(metric)

    def measure(played: Sequence[Played]) -> float | None:
        found = ratio(played)
        return found - 1 if found is not None else None

    return Measure(f"{metric}, the first over the second, less 1", measure)


def gap_of(metric: str) -> Measure:
    """The absolute difference of the first and second runs' metrics, divided by the second's."""
    excess = excess_of(metric)

    def measure(played: Sequence[Played]) -> float | None:
        found = excess(played)
        return abs(found) if found is not None else None

    return Measure(f"{metric}, distance of the first from the second", measure)


def over_the_best(metric: str) -> Measure:
    """The first run's metric divided by the least of the others'; runs without a result are ignored."""

    def measure(played: Sequence[Played]) -> float | None:
        mine, *others = (_metric(one, metric) for one in played)
        known = [other for other in others if other]
        return float(mine / min(known)) if mine is not None and known else None

    return Measure(f"{metric}, the first over the least of the others", measure)


def mean_of_pairs(measure: Measure) -> Measure:
    """The geometric mean of a ratio of two runs over all pairs; None if one pair did not get that far."""

    def mean(played: Sequence[Played]) -> float | None:
        ratios = [measure(played[at : at + 2]) for at in range(0, len(played), 2)]
        found = [ratio for ratio in ratios if ratio is not None]
        return statistics.geometric_mean(found) if len(found) == len(ratios) else None

    return Measure(f"{measure.name}: geometric mean over all pairs of runs", mean)


def least_of_pairs(metric: str) -> Measure:
    """The least ratio of a run's metric to that of the next run, over all pairs: a paper's *up to*."""

    def measure(played: Sequence[Played]) -> float | None:
        ratios = [ratio_of(metric)(played[at : at + 2]) for at in range(0, len(played), 2)]
        return min(ratio for ratio in ratios if ratio is not None) if None not in ratios else None

    return Measure(f"least ratio of {metric} over all pairs of runs", measure)


def _of_equilibrium(played: Sequence[Played]) -> float:
    wanted = list(EQUILIBRIUM.values())
    return max(abs(share - want) for share, want in zip(played[0].outcome.shares, wanted, strict=True)) / sum(wanted)


OF_EQUILIBRIUM: Final = Measure("largest distance of a share from (89, 21, 12, 6), as a part of 128", _of_equilibrium)


def _to_balance(played: Sequence[Played]) -> float | None:
    spans = played[0].spans
    final = statistics.fmean(spans[-30:])
    near = (k for k in range(len(spans) - 10) if statistics.fmean(spans[k : k + 10]) <= 1.1 * final)
    return next((float(k) for k in near), None)


TO_BALANCE: Final = Measure("first of ten iterations on average within 10 % of the last thirty", _to_balance)


def samples_spread(played: Played) -> float:
    """Standard deviation divided by mean of the workers' processed samples."""
    samples = [samples for samples, _ in played.work]
    return statistics.pstdev(samples) / statistics.fmean(samples)


SAMPLES_SPREAD: Final = Measure(
    "standard deviation over mean of the workers' samples, the first run's over the second's",
    lambda played: samples_spread(played[0]) / samples_spread(played[1]),
)


def share_of(rank: int, before: int) -> Measure:
    """A worker's last share divided by ``before``."""
    return Measure(f"last share of w{rank} over {before}", lambda played: played[0].outcome.shares[rank] / before)


def share_in(phases: Phases, before: int) -> Measure:
    """Worker 0's mean share in these phases, divided by ``before``."""

    def measure(played: Sequence[Played]) -> float:
        begins = [iteration for iteration, _ in played[0].first_shares]
        shares = [
            played[0].first_shares[bisect_right(begins, iteration) - 1][1]
            for first, last in phases
            for iteration in range(first, last)
        ]
        return statistics.fmean(shares) / before

    return Measure(f"mean share of w0 in {list(phases)} over {before}", measure)


def within(phases: Phases) -> Measure:
    """Iteration time in these phases, the first run's divided by the second's."""
    return Measure(
        f"iteration time in {list(phases)}, the first over the second",
        lambda played: _mean_in(played[0], phases) / _mean_in(played[1], phases),
    )


def longer_in(phases: Phases, others: Phases) -> Measure:
    """One run's iteration time in some phases divided by that in others, minus 1."""
    return Measure(
        f"iteration time in {list(phases)} over that in {list(others)}, less 1",
        lambda played: _mean_in(played[0], phases) / _mean_in(played[0], others) - 1,
    )


def _accuracy_change(played: Sequence[Played]) -> float | None:
    if any(not one.accuracies for one in played[:2]):
        return None
    return statistics.fmean(played[0].accuracies) - statistics.fmean(played[1].accuracies)


ACCURACY_CHANGE: Final = Measure("mean accuracy near the end, the first less the second", _accuracy_change)


def _accuracy_ratio(played: Sequence[Played]) -> float | None:
    if any(not one.accuracies for one in played[:2]):
        return None
    return statistics.fmean(played[0].accuracies) / statistics.fmean(played[1].accuracies)


ACCURACY_RATIO: Final = Measure("mean accuracy near the end, the first over the second", _accuracy_ratio)


def _at_equal_updates(played: Sequence[Played]) -> float | None:
    curves = [[(updates, score) for _, updates, score in one.curve if score is not None] for one in played[:2]]
    if not all(curves):
        return None
    until = min(curve[-1][0] for curve in curves)
    mine, its = (statistics.fmean([score for updates, score in curve if updates <= until][-10:]) for curve in curves)
    return mine / its


AT_EQUAL_UPDATES: Final = Measure("accuracy at as many updates, the first over the second", _at_equal_updates)


def spread(played: Sequence[Played]) -> float:
    """Standard deviation of the workers' progress divided by its mean."""
    progress = played[0].outcome.progress
    return statistics.pstdev(progress) / statistics.fmean(progress)


SPREAD: Final = Measure("standard deviation of the workers' progress over its mean", spread)
SPREAD_RATIO: Final = Measure(
    "the same, the first run's over the second's", lambda played: spread(played[:1]) / spread(played[1:2])
)


def speed_between(from_s: float, until_s: float) -> Measure:
    """Iterations per second in an interval, the first run's divided by the second's."""

    def measure(played: Sequence[Played]) -> float | None:
        mine, its = (speed_in(one, from_s, until_s) for one in played[:2])
        return mine / its if its else None

    return Measure(f"iterations per second from {from_s:g} to {until_s:g} s, the first over the second", measure)


def speed_after(between_s: tuple[float, float], before_s: tuple[float, float]) -> Measure:
    """One run's iterations per second in one interval divided by those in another."""

    def measure(played: Sequence[Played]) -> float | None:
        later, sooner = speed_in(played[0], *between_s), speed_in(played[0], *before_s)
        return later / sooner if sooner else None

    return Measure(
        f"iterations per second from {between_s[0]:g} to {between_s[1]:g} s over those from {before_s[0]:g} to "
        f"{before_s[1]:g} s",
        measure,
    )


def slowness_between(from_s: float, until_s: float) -> Measure:
    """Iterations per second in an interval, the second run's divided by the first's: below 1 if the first is faster."""
    faster = speed_between(from_s, until_s)
    return Measure(
        f"iterations per second from {from_s:g} to {until_s:g} s, the second over the first",
        lambda played: faster(played[1::-1]),
    )


def _suspended(played: Sequence[Played]) -> float | None:
    spans = played[1].spans
    if not spans:
        return None
    return played[0].outcome.moving_s / (max(spans) - statistics.median(spans))


SUSPENDED: Final = Measure("time held up by moves of blocks over that of the second run's restart", _suspended)
HELD_UP: Final = Measure("time for which moves of blocks held workers up", lambda played: played[0].outcome.moving_s)


def _missed_by_size(played: Sequence[Played]) -> float | None:
    more, less = (one.outcome.inconsistency * len(one.outcome.progress) for one in played[:2])
    return more / less if less else None


MISSED_BY_SIZE: Final = Measure("updates missed, not normalised, the first over the second", _missed_by_size)


def sequence_inconsistency(progress: Sequence[int]) -> float:
    """How far the updates made so far differ from as many in BSP's order (PSP section 5), divided by the number of
    workers.

    The *true sequence* has the first update of each worker by rank, then the second of each, and so on. Counted are its
    updates that are not made yet, and the updates made that it does not have. ``progress``: each worker's updates.
    """
    whole, rest = divmod(sum(progress), len(progress))
    return sum(abs(made - whole - (rank < rest)) for rank, made in enumerate(progress)) / len(progress)


def _sequence(played: Sequence[Played]) -> list[float]:
    return [sequence_inconsistency(one.outcome.progress) for one in played]


SEQUENCE: Final = Measure(
    "inconsistency of the sequence, mean of the runs", lambda played: statistics.fmean(_sequence(played))
)


def _sequence_growth(played: Sequence[Played]) -> float | None:
    last, first = _sequence(played[:2])
    return last / first if first else None


SEQUENCE_GROWTH: Final = Measure("inconsistency of the sequence, the first over the second", _sequence_growth)


def _rmse_over_the_best(played: Sequence[Played]) -> float | None:
    mine, *others = (one.rmse for one in played)
    known = [other for other in others if other]
    return mine / min(known) if mine is not None and known else None


RMSE_OVER_THE_BEST: Final = Measure("RMSE of forecasts, the first over the least of the others", _rmse_over_the_best)


def _mean_in(played: Played, phases: Phases) -> float:
    spans = [span for first, last in phases for span in played.spans[first:last]]
    return statistics.fmean(spans)


def speed_in(played: Played, from_s: float, until_s: float) -> float:
    """Iterations per second in an interval."""
    at_s, count = 0.0, 0
    for span in played.spans:
        at_s += span
        count += from_s <= at_s < until_s
    return count / (until_s - from_s)
