"""A headline of a paper as runs and a measure of them, and the rule by which it counts as reproduced.

The rule is the same for all:

- *effect*: both figures are ratios against a baseline. The logarithm of ours over that of the paper's is between 0.7
  and 1.4: reproduced; of the same sign and at least a quarter: partly (larger or smaller); else: not.
- *equal*: ours is within 10 % of the paper's: reproduced; within 25 %: partly; else: not.
- *difference*: both are differences (of accuracies, say); off by at most 0.05 or 30 %: reproduced; of the same sign and
  at least a quarter: partly; else: not.
- *at most*: ours is at most the paper's: reproduced; at most twice that: partly; else: not.
"""

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from controlplane.protocol.base import Value
from controlplane.simulator.outcome import Outcome

Kind = Literal["effect", "equal", "difference", "at most"]
Verdict = Literal["reproduced", "partly", "not"]
LOW, HIGH, QUARTER = 0.7, 1.4, 0.25


class Played(Value, frozen=True, kw_only=True):
    """What is kept of one run."""

    outcome: Outcome
    spans: list[float]
    """How long each closed iteration took, from the second on."""
    accuracies: list[float]
    """Of the last evaluations, up to ten."""
    cpu_s: float


@dataclass(frozen=True, slots=True)
class Run:
    """One scenario under one policy."""

    scenario: str
    policy: str
    to_target: bool = False
    """It may end when the target is reached."""


Measure = Callable[[Sequence[Played]], float | None]
"""From one seed's runs, in order, to the figure; None where a run did not get that far."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """One headline."""

    where: str
    says: str
    figure: float
    """The paper's, as ``measure`` has it."""
    kind: Kind = "effect"
    runs: tuple[Run, ...]
    measure: Measure
    beside: tuple[tuple[str, tuple[Run, ...]], ...] = ()
    """Our own policies by name, with the runs for the same measure."""
    note: str
    """What was calibrated, what was shrunk, and why figures differ."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What came out for one headline."""

    claim: Claim
    values: tuple[float, ...]
    """One for each seed that got far enough."""
    missing: int
    beside: tuple[tuple[str, tuple[float, ...]], ...]
    verdict: Verdict

    @property
    def mean(self) -> float | None:
        """Over the seeds."""
        return statistics.fmean(self.values) if self.values else None


def judge(kind: Kind, paper: float, ours: float) -> Verdict:
    """By the rule above."""
    if kind == "effect":
        wanted, found = math.log(paper), math.log(ours) if ours > 0 else -math.inf
        part = found / wanted
        return "reproduced" if LOW <= part <= HIGH else "partly" if part >= QUARTER else "not"
    if kind == "equal":
        off = abs(ours / paper - 1.0)
        return "reproduced" if off <= 0.10 else "partly" if off <= 0.25 else "not"
    if kind == "at most":
        return "reproduced" if ours <= paper else "partly" if ours <= 2 * paper else "not"
    if abs(ours - paper) <= max(0.05, 0.3 * abs(paper)):
        return "reproduced"
    return "partly" if ours * paper > 0 and abs(ours) >= QUARTER * abs(paper) else "not"


def find(claim: Claim, seeds: int, played: Callable[[Run, int], Played]) -> Finding:
    """Measure a headline over the seeds."""
    values = [claim.measure([played(run, seed) for run in claim.runs]) for seed in range(seeds)]
    known = tuple(value for value in values if value is not None)
    beside = []
    for name, runs in claim.beside:
        found = [claim.measure([played(run, seed) for run in runs]) for seed in range(seeds)]
        beside.append((name, tuple(value for value in found if value is not None)))
    verdict = judge(claim.kind, claim.figure, statistics.fmean(known)) if known else "not"
    return Finding(claim=claim, values=known, missing=len(values) - len(known), beside=tuple(beside), verdict=verdict)


def ratio_of(metric: str) -> Measure:
    """The first run's metric over the second's."""

    def measure(played: Sequence[Played]) -> float | None:
        mine, its = (getattr(one.outcome, metric) for one in played[:2])
        return float(mine / its) if mine is not None and its else None

    return measure


def against(scenario: str, policies: Sequence[str], base: str) -> tuple[tuple[str, tuple[Run, ...]], ...]:
    """Our own policies against the same baseline."""
    return tuple((policy, (Run(scenario, policy), Run(scenario, base))) for policy in policies)


def runs_of(claims: Sequence[Claim]) -> list[Run]:
    """Every run that is needed, once."""
    found = {run: None for claim in claims for run in claim.runs}
    found |= {run: None for claim in claims for _, runs in claim.beside for run in runs}
    return list(found)
