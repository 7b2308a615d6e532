"""Simulates a job under other policies, or on other machines: one less, one more, more bandwidth.

The model is checked first: the recorded policies are simulated with it and compared with the recording. Every
alternative is simulated with the same seeds; its saving is the difference between two simulations with the same random
numbers, over the same number of iterations, or of samples if the global batch cannot be divided. A simulated job is its
own model: there, the spread over seeds is shown.
"""

import statistics
from collections.abc import Callable, Sequence
from typing import Final, Literal

from msgspec.structs import replace

from controlplane.protocol.base import Value
from controlplane.protocol.spec import Synchronization
from controlplane.simulator.cluster import Cluster
from controlplane.simulator.errors import SimulationError
from controlplane.simulator.learned_machine import RecordedMachine
from controlplane.simulator.machines import CpuMachine, GpuMachine
from controlplane.simulator.outcome import Fit, Lengths, Outcome, fit_of, judge, lengths_of, outcome_of
from controlplane.simulator.recorded_run import (
    MOST,
    OTHERS,
    RECORDED,
    Run,
    is_compatible,
    scenario_of,
    with_another,
    with_bandwidth,
    without,
)
from controlplane.simulator.scenario import Scenario, check, chosen

TWICE: Final = 2.0


class Ways(Value, frozen=True, kw_only=True):
    """The alternatives to simulate. Ranks are those of workers that stay; default policies are the recorded ones."""

    policies: Sequence[str] = ()
    without: Sequence[int] = ()
    """Ranks to leave out, one at a time."""
    like: Sequence[int] = ()
    """Ranks whose machine is added once more, one at a time."""
    bandwidths: Sequence[float] = ()
    """Factors of the bandwidth, one at a time."""


USUAL: Final = Ways()


class Alternative(Value, frozen=True, kw_only=True):
    """One alternative. Time saved is relative to the recorded policies and machines; negative if it takes longer."""

    name: str
    seconds: float
    """Mean time over the seeds, for all simulated iterations."""
    iteration_s: float
    waiting: float
    samples: float
    """Processed samples relative to the recorded policies: below 1 if part of the work is left out."""
    saved_s: float
    saved: float
    """Saved fraction of the recorded policies' time: mean over the seeds,"""
    saved_low: float
    saved_high: float
    """and the least and most that any seed gave."""
    unfinished: int
    """Number of seeds with which the job did not finish."""
    kind: Literal["policy", "machines"] = "policy"
    """The differences from the recording."""


class WhatIf(Value, frozen=True, kw_only=True):
    """The result."""

    job: int
    iterations: int
    """Number of simulated iterations."""
    seeds: int
    fit: Fit
    recorded: Alternative
    alternatives: list[Alternative]


Play = tuple[Outcome, Lengths]


def what_if(
    run: Run, ways: Ways = USUAL, *, seeds: int = 8, progress: Callable[[str], None] = lambda _: None
) -> WhatIf:
    """Check the model, then simulate every alternative. ``progress`` is called with the name of each simulated
    alternative.

    Raises:
        SimulationError: for an unknown policy, or a model with which no iteration can complete.
    """
    scenario = scenario_of(run)
    check(scenario)
    alternatives = _alternatives(scenario, RECORDED, ways)
    base = _base(scenario, RECORDED, seeds, progress)
    return _answer(run.job, scenario, alternatives, base, judge(run, [lengths for _, lengths in base]), progress)


def what_if_simulated(
    job: int,
    scenario: Scenario,
    policy: str,
    ways: Ways = USUAL,
    *,
    iteration_s: float,
    seeds: int = 8,
    progress: Callable[[str], None] = lambda _: None,
) -> WhatIf:
    """The same for a simulated job, whose own seed had a mean iteration time of ``iteration_s``: its machines are
    known.

    If it ends by a number of iterations, only times are simulated, for at most ``MOST`` iterations.

    Raises:
        SimulationError: as ``what_if``.
    """
    if policy in scenario.reassigning:
        raise SimulationError(
            f"policy {policy}: its workers pass work to one another within an iteration, so there are no "
            "alternatives; choose a run of another policy of this simulation"
        )
    own, stop = chosen(scenario, policy), scenario.spec.stop
    if stop.iterations is not None:
        short = replace(stop, iterations=max(scenario.warm_up + 1, min(MOST, stop.iterations)), accuracy=None)
        scenario = replace(scenario, spec=replace(scenario.spec, stop=short), numerics=None)
    others = {name: other for name, other in OTHERS.items() if is_compatible(scenario.spec, other)}
    scenario = replace(scenario, policies={**others, policy: own}, baseline=policy, paper=())
    check(scenario)
    alternatives = _alternatives(scenario, policy, ways)
    base = _base(scenario, policy, seeds, progress)
    lengths = [outcome.iteration_s for outcome, _ in base]
    errors = sorted(abs(each - iteration_s) / max(iteration_s, 1e-9) for each in lengths)
    fit = fit_of("seeds", errors, recorded_s=iteration_s, predicted_s=statistics.fmean(lengths))
    return _answer(job, scenario, alternatives, base, fit, progress)


def count_ways(ways: Ways, run: Run) -> int:
    """How many alternatives ``what_if`` will simulate, the recorded one included."""
    return 1 + len(_alternatives(scenario_of(run), RECORDED, ways))


def fastest(run: Run) -> int:
    """The worker with the lowest median time per sample, of those that stayed."""
    paces = {
        rank: statistics.median(sample.compute_s / sample.samples for sample in found)
        for rank, found in run.samples.items()
        if rank not in run.left_s
    }
    return min(paces, key=lambda rank: (paces[rank], rank))


def slowest(run: Run, count: int) -> list[int]:
    """The workers with the highest median time for an even share and its exchange.

    Times of the actual shares would not show them, since balancing policies make these equal.
    """
    share = run.spec.usual_share
    even_s = {
        rank: statistics.median(sample.compute_s * share / sample.samples + sample.communication_s for sample in found)
        for rank, found in run.samples.items()
        if rank not in run.left_s
    }
    return sorted(sorted(even_s, key=lambda rank: (-even_s[rank], rank))[:count])


def slowest_of(scenario: Scenario, count: int) -> list[int]:
    """For a simulated job: the workers whose machines take longest for an even share without disturbances."""
    order = sorted(range(scenario.spec.workers), key=lambda rank: (-_even_s(scenario, rank), rank))
    return sorted(order[:count])


def fastest_of(scenario: Scenario) -> int:
    """For a simulated job: the worker whose machine is fastest."""
    return min(range(scenario.spec.workers), key=lambda rank: (_even_s(scenario, rank), rank))


def _even_s(scenario: Scenario, rank: int) -> float:
    samples, machine = scenario.spec.usual_share, scenario.machines[rank].machine
    match machine:
        case CpuMachine():
            return (machine.overhead_s + samples / machine.samples_per_second) * machine.slowness
        case GpuMachine():
            return machine.launch_s + max(samples, machine.saturation) * machine.seconds_per_sample
        case RecordedMachine():
            return machine.fixed_s + samples * machine.each_s
        case _:
            return samples / machine.samples_per_second


class _Way(Value, frozen=True, kw_only=True):
    """An alternative before its simulation."""

    name: str
    kind: Literal["policy", "machines"]
    scenario: Scenario
    synchronization: Synchronization


def _alternatives(scenario: Scenario, own: str, ways: Ways) -> list[_Way]:
    names = list(ways.policies) or _others(scenario, own)
    changed = {f"without w{rank}": without(scenario, rank) for rank in ways.without}
    changed |= {f"one more like w{rank}": with_another(scenario, rank) for rank in ways.like}
    changed |= {_bandwidth(times): with_bandwidth(scenario, times) for times in ways.bandwidths}
    policy = scenario.policies[own]
    return [
        *(_Way(name=each, kind="policy", scenario=scenario, synchronization=chosen(scenario, each)) for each in names),
        *(_Way(name=each, kind="machines", scenario=new, synchronization=policy) for each, new in changed.items()),
    ]


def _bandwidth(times: float) -> str:
    return "twice the bandwidth" if times == TWICE else f"{times:g} times the bandwidth"


def _base(scenario: Scenario, own: str, seeds: int, progress: Callable[[str], None]) -> list[Play]:
    base = [_play(scenario, scenario.policies[own], own, seed) for seed in range(seeds)]
    progress(own)
    return base


def _answer(
    job: int, scenario: Scenario, ways: Sequence[_Way], base: Sequence[Play], fit: Fit, progress: Callable[[str], None]
) -> WhatIf:
    outcomes = [outcome for outcome, _ in base]
    alternatives = []
    for way in ways:
        found = [_play(way.scenario, way.synchronization, way.name, seed)[0] for seed in range(len(base))]
        alternatives.append(replace(_compare(way.name, found, outcomes), kind=way.kind))
        progress(way.name)
    return WhatIf(
        job=job,
        iterations=scenario.spec.stop.iterations or outcomes[0].iterations,
        seeds=len(base),
        fit=fit,
        recorded=_compare(RECORDED, outcomes, outcomes),
        alternatives=sorted(alternatives, key=lambda one: -one.saved),
    )


def _others(scenario: Scenario, own: str) -> list[str]:
    policy = scenario.policies[own]
    return [name for name, other in scenario.policies.items() if name != own and other != policy]


def _play(scenario: Scenario, synchronization: Synchronization, name: str, seed: int) -> Play:
    cluster = Cluster(scenario, synchronization, seed=seed)
    cluster.run()
    return outcome_of(cluster, name, seed, None), lengths_of(cluster)


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
