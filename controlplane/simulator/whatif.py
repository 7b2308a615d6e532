"""What a recorded job would have done under other policies, or without one of its workers.

The model is judged first: the recorded policies are played on it, and compared with what was recorded. Every
alternative is played with the same seeds as these; what it saves is a difference between two simulations with the same
chance, over the same number of iterations.
"""

import itertools
import statistics
from collections.abc import Callable, Mapping, Sequence

from controlplane.protocol.base import Value
from controlplane.protocol.spec import Synchronization
from controlplane.simulator.cluster import Cluster
from controlplane.simulator.outcome import Outcome, outcome_of
from controlplane.simulator.recorded import RECORDED, Run, scenario_of, without
from controlplane.simulator.scenario import Scenario, check, chosen


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


class Alternative(Value, frozen=True, kw_only=True):
    """One other way to run the job. Time saved is relative to the recorded way, negative where it takes longer."""

    name: str
    seconds: float
    """Mean over the seeds, for as many iterations as were played."""
    iteration_s: float
    waiting: float
    samples: float
    """Processed, over those of the recorded way: below 1 where part of the work is left out."""
    saved_s: float
    saved: float
    """Part of the recorded way's time: mean over the seeds,"""
    saved_low: float
    saved_high: float
    """and the least and most that any seed gave."""
    unfinished: int
    """Seeds with which the job did not come to its end."""


class WhatIf(Value, frozen=True, kw_only=True):
    """The whole answer."""

    job: int
    iterations: int
    """That were played."""
    seeds: int
    fit: Fit
    recorded: Alternative
    alternatives: list[Alternative]


Play = tuple[Outcome, list[float], list[float]]
"""Outcome, how long each closed iteration took from the second on, mean iteration time of each worker."""


def what_if(
    run: Run,
    *,
    policies: Sequence[str] = (),
    without_ranks: Sequence[int] = (),
    seeds: int = 8,
    progress: Callable[[str], None] = lambda _: None,
) -> WhatIf:
    """Judge the model, then play every alternative: ``policies`` (none: those that ``recorded`` names), and the job
    without each of ``without_ranks``. ``progress`` is told the name of each way when it has been played.

    Raises:
        SimulationError: for a policy that does not exist, or a model on which nothing can go on.
    """
    scenario = scenario_of(run)
    check(scenario)
    names = list(policies) or _others(scenario)
    ways = {name: (scenario, chosen(scenario, name)) for name in names}
    own = scenario.policies[RECORDED]
    ways |= {f"without w{rank}": (without(scenario, rank), own) for rank in without_ranks}
    base = [_play(scenario, own, RECORDED, seed) for seed in range(seeds)]
    progress(RECORDED)
    alternatives = []
    for name, (played, synchronization) in ways.items():
        found = [_play(played, synchronization, name, seed)[0] for seed in range(seeds)]
        alternatives.append(_compare(name, found, [outcome for outcome, _, _ in base]))
        progress(name)
    assert scenario.spec.stop.iterations is not None
    return WhatIf(
        job=run.job,
        iterations=scenario.spec.stop.iterations,
        seeds=seeds,
        fit=_judge(run, base),
        recorded=_compare(RECORDED, [one[0] for one in base], [one[0] for one in base]),
        alternatives=sorted(alternatives, key=lambda one: -one.saved),
    )


def count_ways(policies: Sequence[str], without_ranks: Sequence[int], run: Run) -> int:
    """How many ways ``what_if`` will play, the recorded one included."""
    return 1 + len(policies or _others(scenario_of(run))) + len(without_ranks)


def slowest(run: Run, count: int) -> list[int]:
    """The workers whose own part of an iteration took longest, as medians have it."""
    busy: Mapping[int, float] = {
        rank: statistics.median(sample.compute_s + sample.communication_s for sample in found)
        for rank, found in run.samples.items()
        if rank not in run.left_s
    }
    return sorted(sorted(busy, key=lambda rank: (-busy[rank], rank))[:count])


def _others(scenario: Scenario) -> list[str]:
    own = scenario.policies[RECORDED]
    return [name for name, policy in scenario.policies.items() if name != RECORDED and policy != own]


def _play(scenario: Scenario, synchronization: Synchronization, name: str, seed: int) -> Play:
    cluster = Cluster(scenario, synchronization, seed=seed)
    cluster.run()
    spans = [later - sooner for sooner, later in itertools.pairwise(cluster.servers.closed_s)]
    each = [worker.total_s / max(1, worker.reports) for worker in cluster.workers]
    return outcome_of(cluster, name, seed, None), spans, each


def _judge(run: Run, base: Sequence[Play]) -> Fit:
    """Iteration by iteration where there are such, else worker by worker."""
    changed_at = run.changed_at if run.changed_at is not None else len(base[0][1]) + 2
    compared = [k for k in run.iteration_s if 1 < k < changed_at and all(k <= len(spans) for _, spans, _ in base)]
    if compared:
        recorded = [run.iteration_s[k] for k in compared]
        predicted = [statistics.fmean(spans[k - 1] for _, spans, _ in base) for k in compared]
        what = "iterations"
    else:
        stay = [rank for rank in run.samples if rank not in run.left_s]
        recorded = [statistics.fmean(sample.total_s for sample in run.samples[rank]) for rank in stay]
        predicted = [statistics.fmean(each[rank] for _, _, each in base) for rank in stay]
        what = "workers"
    errors = sorted(abs(p - r) / max(r, 1e-9) for p, r in zip(predicted, recorded, strict=True))
    return Fit(
        compared=len(errors),
        what=what,
        recorded_s=statistics.fmean(recorded),
        predicted_s=statistics.fmean(predicted),
        error_median=statistics.median(errors),
        error_p95=errors[min(len(errors) - 1, int(0.95 * len(errors)))],
    )


def _compare(name: str, found: Sequence[Outcome], base: Sequence[Outcome]) -> Alternative:
    saved = [1.0 - mine.seconds / its.seconds if its.seconds else 0.0 for mine, its in zip(found, base, strict=True)]
    samples = sum(one.samples for one in found) / max(1, sum(one.samples for one in base))
    return Alternative(
        name=name,
        seconds=statistics.fmean(one.seconds for one in found),
        iteration_s=statistics.fmean(one.iteration_s for one in found),
        waiting=statistics.fmean(one.waiting for one in found),
        samples=samples,
        saved_s=statistics.fmean(its.seconds - mine.seconds for mine, its in zip(found, base, strict=True)),
        saved=statistics.fmean(saved),
        saved_low=min(saved),
        saved_high=max(saved),
        unfinished=sum(one.state != "succeeded" for one in found),
    )
