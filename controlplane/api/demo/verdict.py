"""The checks of the demo's results. Pure."""

import math
from dataclasses import dataclass

from controlplane.api.demo.record import SETTLED_FROM, Record
from controlplane.api.demo.scenarios import Run, Scenario
from controlplane.core.barriers import AsyncBarrier, PartialBarrier, QuorumBarrier, includes_all_workers
from controlplane.core.choices import Budgeting
from controlplane.policies import registry
from controlplane.protocol.spec import Choice

RATIO = 0.45
"""LB-BSP's mean iteration time may be at most this fraction of BSP's; the emulated machines allow 0.36."""

ACCURACY_POINTS = 0.5
SHARE_SAMPLES = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """One check: the expected and the found value, and whether it passed."""

    name: str
    expected: str
    found: str
    holds: bool

    @property
    def sentence(self) -> str:
        """The check as text."""
        return f"{self.name}: {self.found}, expected {self.expected}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """One row of the closing table."""

    label: str
    seconds_to_target: float | None
    mean_iteration_s: float
    lost_share: float
    """Waiting and coordination, of all workers' time."""
    final_accuracy: float
    seconds: float = 0.0
    """From the first iteration to the end."""
    samples: int = 0
    updates: int = 0


def summarise(label: str, record: Record, scenario: Scenario) -> Summary:
    """The figures of one run."""
    return Summary(
        label=label,
        seconds_to_target=record.seconds_to(scenario.target),
        mean_iteration_s=record.mean_iteration_s(),
        lost_share=record.lost_share(),
        final_accuracy=record.final_accuracy(),
    )


def speed_up(baseline: Record, challenger: Record) -> float:
    """The speed-up of iterations once the shares have settled."""
    return baseline.mean_iteration_s() / challenger.mean_iteration_s()


def judge(scenario: Scenario, baseline: Record, challenger: Record) -> list[Bar]:
    """Every check, in the order in which they are shown."""
    return [
        _time_bar(baseline, challenger),
        _accuracy_bar(baseline, challenger),
        _end_bar(scenario, baseline, challenger),
        _share_bar(scenario, challenger),
    ]


def has_common_iterations(run: Run) -> bool:
    """Whether all workers of the run do the same iterations: false if each continues independently."""
    return not isinstance(_policy(run, "barrier"), AsyncBarrier)


def has_every_report(run: Run) -> bool:
    """Whether the number of reports is known: one from every worker for each iteration."""
    return includes_all_workers(_policy(run, "barrier"))


def _policy(run: Run, question: str) -> object:
    """The policy of that kind in this run."""
    return registry.resolve(question, Choice(name=run.name_of(question)))


def what_compares(run: Run) -> str:
    """Explains what can be compared with plain BSP."""
    barrier = run.name_of("barrier")
    if not run.choices:
        return "Both runs are plain BSP: differences are random."
    if not has_common_iterations(run):
        return (
            f"Under {barrier}, workers do not share iterations, and each update is 1/n of a step: compare the "
            "time for the same number of samples, and the accuracy at the end; not the number of iterations."
        )
    if isinstance(_policy(run, "barrier"), PartialBarrier | QuorumBarrier):
        return (
            f"Under {barrier}, an iteration covers part of its batch: compare the time to the same accuracy, not "
            "the time of an iteration."
        )
    if isinstance(_policy(run, "batching"), Budgeting):
        return "Iterations end by the clock, with the same number of samples on average: compare times."
    if run.choices.keys() == {"placement"}:
        return "Both runs process the same samples with the same results: placement affects only transfer times."
    return "Both runs process the same number of samples per iteration: compare times, at equal accuracy."


def summarise_by_clock(label: str, record: Record, scenario: Scenario) -> Summary:
    """The figures of a run with independent workers: time is measured at the worker that evaluates."""
    updates = record.updates()
    return Summary(
        label=label,
        seconds_to_target=record.clock_to(scenario.target),
        mean_iteration_s=record.mean_iteration_s(),
        lost_share=record.lost_share(),
        final_accuracy=record.final_accuracy(),
        seconds=record.clock_s(),
        samples=record.processed(),
        updates=updates,
    )


def judge_chosen(scenario: Scenario, baseline: Record, challenger: Record) -> list[Bar]:
    """The check that applies to any policies: both runs learn."""
    return [_end_bar(scenario, baseline, challenger)]


def _time_bar(baseline: Record, challenger: Record) -> Bar:
    ratio = challenger.mean_iteration_s() / baseline.mean_iteration_s()
    return Bar(
        name=f"mean iteration time after {SETTLED_FROM} iterations, LB-BSP to BSP",
        expected=f"at most {RATIO}",
        found=f"{ratio:.3f}",
        holds=ratio <= RATIO,
    )


def _accuracy_bar(baseline: Record, challenger: Record) -> Bar:
    common = sorted(baseline.accuracy.keys() & challenger.accuracy.keys())
    points = max((100 * abs(baseline.accuracy[k] - challenger.accuracy[k]) for k in common), default=math.inf)
    return Bar(
        name="largest difference in accuracy at the same iteration",
        expected=f"at most {ACCURACY_POINTS} points",
        found=f"{points:.2f} points over {len(common)} evaluations",
        holds=points <= ACCURACY_POINTS,
    )


def _end_bar(scenario: Scenario, baseline: Record, challenger: Record) -> Bar:
    lowest = min(baseline.final_accuracy(), challenger.final_accuracy())
    return Bar(
        name="accuracy at the end of both runs",
        expected=f"at least {scenario.least}",
        found=f"{lowest:.4f}",
        holds=lowest >= scenario.least,
    )


def _share_bar(scenario: Scenario, challenger: Record) -> Bar:
    settled = challenger.settled_shares()
    targets = dict(enumerate(scenario.proportional_shares()))
    distance = max((abs(settled.get(rank, math.inf) - share) for rank, share in targets.items()), default=math.inf)
    shares = ", ".join(f"{settled.get(rank, math.nan):.1f}" for rank in targets)
    ideal = ", ".join(f"{share:.1f}" for share in targets.values())
    return Bar(
        name="settled shares",
        expected=f"within {SHARE_SAMPLES:.0f} samples of proportional to speed ({ideal})",
        found=f"{shares}, off by at most {distance:.1f}",
        holds=distance <= SHARE_SAMPLES,
    )
