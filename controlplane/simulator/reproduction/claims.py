"""A headline of a paper as runs, a measure of them, and the mechanism that must be active in them."""

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from controlplane.protocol.base import Value
from controlplane.simulator.outcome import Outcome
from controlplane.simulator.reproduction.verdicts import Kind, Verdict, judge, lowered

Basis = Literal["predicted", "calibrated", "by construction", "our reading"]
"""The kind of a row: a figure of the paper, with no setting chosen to match it; with such a setting; a result that is
true by construction; or one for which the text has no figure or no setting, so that both bounds were chosen here.
"""


class Played(Value, frozen=True, kw_only=True):
    """The stored results of one run."""

    outcome: Outcome
    spans: list[float]
    """Duration of each complete iteration, from the second on."""
    accuracies: list[float]
    """Accuracies of the last evaluations, up to ten."""
    curve: list[tuple[float, int, float | None]] = []
    """All evaluations: virtual time, updates, accuracy."""
    losses: list[tuple[float, int, float]] = []
    """All evaluations: virtual time, updates, held-out loss."""
    added_servers: int = 0
    """Servers that the placement requested and got."""
    moved_splits: int = 0
    """Splits of the data that moved to another worker."""
    work: list[tuple[int, float]] = []
    """By rank: samples, and their seconds of computing and communication."""
    first_shares: list[tuple[int, int]] = []
    """The shares of worker 0, each with its first iteration."""
    exchanges: list[tuple[float, float]] = []
    """For each change of placement: a worker's exchange time with all servers before and after, in seconds.
    """
    rmse: float | None = None
    """RMSE of the forecasts that shares are based on, in samples per second, if there are any."""
    cpu_s: float


@dataclass(frozen=True, slots=True)
class Run:
    """One scenario under one policy."""

    scenario: str
    policy: str
    to_target: bool = False
    """It may end when the target is reached."""


@dataclass(frozen=True, slots=True)
class Measure:
    """Maps one seed's runs, in order, to the figure; None if a run did not get that far."""

    name: str
    of: Callable[[Sequence[Played]], float | None]

    def __call__(self, played: Sequence[Played]) -> float | None:
        """The figure of these runs."""
        return self.of(played)


@dataclass(frozen=True, slots=True)
class Mechanism:
    """The cause of the paper's effect, and whether it was active in one seed's runs."""

    name: str
    acts: Callable[[Sequence[Played]], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """One headline."""

    where: str
    statement: str
    figure: float
    """The paper's figure, in the units of ``measure``."""
    upto: float | None = None
    """The other end, if the paper gives a range."""
    kind: Kind = "effect"
    least: float | None = None
    """For *at most*: the lower bound of the measured figure; 0 if it cannot be negative (fraction, distance, time).
    """
    basis: Basis
    runs: tuple[Run, ...] = ()
    """None if it follows from the policy alone, or is not measured."""
    measure: Measure | None
    """None if it is not measured here; the note says why."""
    mechanism: Mechanism | None = None
    tolerance: float | None = None
    """For *equal*: how far the measured figure may be from the paper's."""
    otherwise: float | None = None
    """For *equal*: the figure if the paper were wrong."""
    beside: tuple[tuple[str, tuple[Run, ...]], ...] = ()
    """Paceline's own policies by name, with the runs for the same measure."""
    note: str
    """Calibrated values, reduced sizes, and why figures differ."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """The result for one headline."""

    claim: Claim
    values: tuple[float | None, ...]
    """One value per seed; None if a run did not get far enough."""
    acted: int
    """Seeds in which the mechanism was active."""
    beside: tuple[tuple[str, tuple[float | None, ...]], ...] = ()

    @property
    def known(self) -> list[float]:
        """The values of the seeds that got far enough."""
        return known(self.values)

    @property
    def missing(self) -> int:
        """Seeds that did not get far enough."""
        return len(self.values) - len(self.known)

    @property
    def mean(self) -> float | None:
        """The mean over the seeds that got far enough."""
        return statistics.fmean(self.known) if self.known else None

    @property
    def verdict(self) -> Verdict:
        """The verdict on the mean. A missing seed lowers it by a step; if half of the seeds are missing, or one has no
        active mechanism, it is a *not*.
        """
        claim = self.claim
        if claim.measure is None:
            return "not measured"
        mean = self.mean
        if mean is None or 2 * self.missing >= len(self.values) or self.acted < len(self.values):
            return "not"
        verdict = judge(claim.kind, claim.figure, mean, upto=claim.upto, tolerance=claim.tolerance, least=claim.least)
        return lowered(verdict) if self.missing else verdict


def find(claim: Claim, seeds: Sequence[int], played: Callable[[Run, int], Played]) -> Finding:
    """Measure a headline over the seeds."""
    if claim.measure is None:
        return Finding(claim=claim, values=(), acted=0)
    own = [[played(run, seed) for run in claim.runs] for seed in seeds]
    beside = [
        (name, tuple(claim.measure([played(run, seed) for run in runs]) for seed in seeds))
        for name, runs in claim.beside
    ]
    acted = sum(claim.mechanism is None or claim.mechanism.acts(each) for each in own)
    return Finding(claim=claim, values=tuple(claim.measure(each) for each in own), acted=acted, beside=tuple(beside))


def known(values: Sequence[float | None]) -> list[float]:
    """The values that are not None."""
    return [value for value in values if value is not None]


def against(scenario: str, policies: Sequence[str], base: str) -> tuple[tuple[str, tuple[Run, ...]], ...]:
    """Paceline's own policies against the same baseline."""
    return tuple((policy, (Run(scenario, policy), Run(scenario, base))) for policy in policies)


def runs_of(claims: Sequence[Claim]) -> list[Run]:
    """Every required run, once."""
    found = {run: None for claim in claims for run in claim.runs}
    found |= {run: None for claim in claims for _, runs in claim.beside for run in runs}
    return list(found)
